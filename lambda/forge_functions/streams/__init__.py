"""Answers that wait for work or for hints."""
