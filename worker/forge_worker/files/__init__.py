"""File operations that are safe against hostile jobs and power cuts."""
