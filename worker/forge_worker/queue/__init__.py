"""The worker's connections to the queue and the store."""
