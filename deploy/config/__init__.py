"""How a YAML file or a word becomes a typed value that knows where it was said; profile, inventory and settings
stand on it.
"""
