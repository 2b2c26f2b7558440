"""What Forge answers, as the client reads it."""
