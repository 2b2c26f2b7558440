"""Many small tasks in one job: how they are packed, and what runs them one after another there."""
