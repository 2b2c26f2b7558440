"""The pages' routes, a file for each page."""
