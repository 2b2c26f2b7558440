"""What runs in a job's own process."""
