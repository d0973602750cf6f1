"""A node's server: asked, watched while it starts, told from others, and judged when it is dead."""
