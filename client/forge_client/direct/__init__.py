"""Forge through its database and store, without a server in between."""
