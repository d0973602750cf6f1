"""Checkpoints: the headers of their files, what is pushed of them, and what a server makes of a draft."""
