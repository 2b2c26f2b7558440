"""Jobs in containers of a Docker engine."""
