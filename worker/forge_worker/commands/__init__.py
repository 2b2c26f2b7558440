"""What `forge-worker` can be asked to do instead of working."""
