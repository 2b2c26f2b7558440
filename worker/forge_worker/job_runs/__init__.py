"""One attempt from its grant to its end, and what it leaves on the disk."""
