"""What a machine that joins gets: this installation's own package."""
