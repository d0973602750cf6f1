"""What a report tells of a run, one subject a file: `section(run)` gives its blocks, or None where there is nothing."""
