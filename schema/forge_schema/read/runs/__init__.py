"""Jobs as runs of their experiments."""
