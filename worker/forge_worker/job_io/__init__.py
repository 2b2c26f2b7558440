"""What goes in and out of a running job: logs, metrics, checkpoints, artifacts."""
