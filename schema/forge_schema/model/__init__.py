"""Models that all packages share: jobs, workers, states, errors."""
