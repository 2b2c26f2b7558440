"""Authentication and roles of callers."""
