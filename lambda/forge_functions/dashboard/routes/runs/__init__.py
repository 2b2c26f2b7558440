"""The pages that look at several runs at once."""
