"""Paths for workers."""
