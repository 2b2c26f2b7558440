"""`forge-server init`: from a bare machine to a service."""
