"""Metrics of a server in Prometheus's format."""
