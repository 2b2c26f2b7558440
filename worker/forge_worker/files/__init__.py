"""Files that are safe from jobs and from power cuts."""
