"""The queue over HTTP, for a worker that has only a URL and a token."""
