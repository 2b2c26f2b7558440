"""What answers hold."""
