"""Readers of the lists and locks that other tools write, a module for each format."""
