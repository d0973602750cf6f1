"""The commands: one a file, each with a click command of the file's name. Heavy imports stay inside functions."""
