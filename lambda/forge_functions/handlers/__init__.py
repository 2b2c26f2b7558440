"""The Lambda functions. Each imports only what it serves."""
