"""What a server tells a monitoring system, in the form that Prometheus reads."""
