"""The messages between workers and servers."""

# Of a job, in one request.
OBJECTS = 100
