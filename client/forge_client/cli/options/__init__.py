"""Options that commands share, and parsers for their values."""
