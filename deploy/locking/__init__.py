"""Who may change a host: the lease of a running command, and the hold of a person."""
