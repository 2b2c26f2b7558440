"""Answers that wait: for work, for hints."""
