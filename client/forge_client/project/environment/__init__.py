"""The Python environment of a project's jobs: where its packages are listed, and their lock."""
