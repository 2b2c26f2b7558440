"""Code that runs in a job's own process."""
