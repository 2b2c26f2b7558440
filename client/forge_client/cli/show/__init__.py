"""The output and the messages of commands."""
