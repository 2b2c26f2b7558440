"""What is made ready before a job starts."""
