"""Commands about runs: the jobs of experiments, side by side."""
