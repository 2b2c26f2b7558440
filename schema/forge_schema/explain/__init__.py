"""Explain why a job waits, and what would start it."""
