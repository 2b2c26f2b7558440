"""Every verb of a user, once: authorise the caller, then call the queue or a read.

The dashboard and the direct client call them; the HTTP routes and the HTTP client are made from
their declarations.
"""
