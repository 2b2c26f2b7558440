"""The paths, one file per noun."""
