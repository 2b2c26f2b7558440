"""Pull, build, load and remove images."""
