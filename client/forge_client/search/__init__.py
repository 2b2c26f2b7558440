"""Searches: sweeps whose points Optuna chooses while the jobs of earlier ones run."""
