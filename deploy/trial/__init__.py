"""`deploy try`: candidates, the loop, and what became of each."""
