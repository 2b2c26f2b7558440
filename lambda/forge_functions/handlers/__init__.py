"""The Lambda functions: each imports only what it serves."""
