"""The inputs and outputs of a running job: logs, metrics, checkpoints, artifacts."""
