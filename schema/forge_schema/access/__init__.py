"""API keys and worker tokens."""
