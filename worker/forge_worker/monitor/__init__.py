"""Metrics of a worker for Prometheus."""
