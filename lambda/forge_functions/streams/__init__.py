"""What wakes answers that wait: hints of work, and the two ends of a shell."""
