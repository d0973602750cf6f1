"""Whose a host's processes, ports and GPUs are, and the end of what is proved ours."""
