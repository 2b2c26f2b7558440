"""The queue through servers, for a worker that has nothing but a URL and a token."""
