"""Gangs: one job on several machines."""
