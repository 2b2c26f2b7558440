-- The scheduled jobs that are due, so that each can be made ready on its own.
SELECT job_id FROM scheduled WHERE run_at <= forge_now() ORDER BY run_at LIMIT %(count)s
