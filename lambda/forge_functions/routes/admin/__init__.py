"""Paths for admins."""
