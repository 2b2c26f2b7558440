"""What a worker and a server say to each other."""
