"""Prepare everything that a job needs before it starts."""
