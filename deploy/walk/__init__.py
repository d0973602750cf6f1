"""Replicas on their way through recipes, and who reads what happens."""
