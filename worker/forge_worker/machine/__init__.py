"""The machine's resources: what it has, what it lends to jobs, and when it takes no more."""
