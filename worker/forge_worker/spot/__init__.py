"""Preemption notices: the clouds that send them, and how long is left."""
