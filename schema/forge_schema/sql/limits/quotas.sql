-- Every owner with what admins set on them.
SELECT owner, paused, max_jobs, max_gpus, weight FROM owner_quota ORDER BY owner
