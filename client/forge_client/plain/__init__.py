"""A server asked with little more than a socket, for commands that are typed all day.

Nothing here imports pydantic, httpx or psycopg: they would take most of such a command's time.
Whatever is not plain (TLS of one's own, a proxy, a refusal, an outage) is left to the whole client.
"""
