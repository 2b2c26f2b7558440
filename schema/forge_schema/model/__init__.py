"""The nouns that all sides agree on: jobs, workers, states, errors."""
