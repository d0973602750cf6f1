"""Logs read after the fact: what they explain, and how far a start came."""
