"""Files that belong together."""
