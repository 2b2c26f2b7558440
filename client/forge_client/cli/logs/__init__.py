"""Reading a job's log."""
