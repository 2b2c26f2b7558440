"""Pages of jobs kept for later."""
