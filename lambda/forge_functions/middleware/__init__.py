"""What is around every request."""
