-- The events of a job, newest first.
SELECT at, actor, action, worker_id, token, detail
FROM event
WHERE job_id = %(job_id)s
ORDER BY at DESC, id DESC
LIMIT %(count)s
