"""Objects for those who hold a lease."""
