"""The HTTP functions."""
