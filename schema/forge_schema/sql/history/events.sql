-- The events of a job, oldest first.
SELECT at, actor, action, worker_id, token, detail
FROM event
WHERE job_id = %(job_id)s
ORDER BY at, id
