-- Every owner with their settings.
SELECT owner, paused, max_jobs, max_gpus, weight FROM owner_quota ORDER BY owner
