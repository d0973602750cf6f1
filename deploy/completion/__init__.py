"""What the tab key offers, and how it gets into a shell."""
