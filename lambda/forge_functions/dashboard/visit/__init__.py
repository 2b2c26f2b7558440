"""Sessions of visitors, and their protection."""
