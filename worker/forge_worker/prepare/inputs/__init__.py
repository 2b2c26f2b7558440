"""Inputs of jobs: read-only data, fetched once for all jobs of an owner on this machine."""
