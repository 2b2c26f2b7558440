"""The code of jobs: bundles read entry by entry, and compared file by file."""
