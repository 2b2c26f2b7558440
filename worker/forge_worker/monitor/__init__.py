"""What a worker tells a monitoring system, in the form that Prometheus reads."""
