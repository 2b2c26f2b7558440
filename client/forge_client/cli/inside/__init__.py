"""Commands that lead into a running job."""
