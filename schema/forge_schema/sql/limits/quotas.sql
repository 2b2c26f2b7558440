-- Every owner with their settings.
SELECT owner, paused, max_jobs, max_gpus, weight, approve_gpu_hours, approve_cost
FROM owner_quota
ORDER BY owner
