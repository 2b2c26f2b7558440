"""The worker's settings."""
