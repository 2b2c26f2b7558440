"""What git knows of a project: which files are its own, its revision, its uncommitted changes."""
