"""Objects in S3."""
