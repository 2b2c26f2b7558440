-- Every queue with what admins set on it.
SELECT name, paused, max_jobs, max_gpus FROM queue ORDER BY name
