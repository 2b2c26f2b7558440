"""Transfers of a job's files: many at once, large ones in chunks, each chunk verified."""
