"""Shells: commands that callers run inside jobs of this worker, through a server."""
