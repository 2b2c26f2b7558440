"""The paths, one file for each noun."""
