"""Options that commands share, and how people write values."""
