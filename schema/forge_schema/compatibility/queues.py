"""What 0.2 sets of a queue at once. Nothing needs this from 0.4 on."""

# Its clients know no other settings: those stay as they are, unless a client names them.
REPLACED = {"paused", "max_jobs", "max_gpus"}
