"""What engines there are: where this machine has its own, and what it is."""
