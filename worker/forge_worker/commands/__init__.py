"""Commands that `forge-worker` runs instead of working."""
