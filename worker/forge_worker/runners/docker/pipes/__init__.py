"""The pipes through which containers' output reaches the logs."""
