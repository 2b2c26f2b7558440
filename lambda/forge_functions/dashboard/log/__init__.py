"""A job's log in pieces."""
