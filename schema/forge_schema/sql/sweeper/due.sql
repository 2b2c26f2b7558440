-- What is scheduled and due, so that each can be made ready by itself.
SELECT job_id FROM scheduled WHERE run_at <= forge_now() ORDER BY run_at LIMIT %(count)s
