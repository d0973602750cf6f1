"""What commands do, between the command line and a walk over hosts."""
