"""The end of a lease, and of a run of several."""
