"""What jobs say and leave, read and put into words: for commands and for the SDK."""
