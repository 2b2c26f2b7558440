"""The messages between workers and servers."""
