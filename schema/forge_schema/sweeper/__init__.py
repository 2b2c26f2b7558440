"""The sweeper: what time alone must move."""
