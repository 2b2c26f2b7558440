"""A job's log by pieces."""
