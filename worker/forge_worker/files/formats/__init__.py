"""What is known about the formats of files that training programs write."""
