"""Every verb of a user, once: authorise the caller, then call the queue or a read.

The HTTP routes, the dashboard and the direct client call it; only the HTTP client mirrors it.
"""
