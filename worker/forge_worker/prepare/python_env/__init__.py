"""Python environments of what projects require."""
