"""How the worker reaches the queue and the store."""
