"""One attempt from its grant to its end, and the files that it leaves on disk."""
