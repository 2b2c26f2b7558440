"""A job's checkpoints: stored while it runs, restored before it starts, thinned out."""
