"""The verbs of a deployment: one a file, each `verb(node, remote) -> str`.

A step looks first, does what is missing, looks again, and says in one line what came of it; it may always run
again. Its docstring is its line in the plan. What it measures it leaves in the run's folder on the host.
"""
