"""What the machine has, lends and can bear."""
