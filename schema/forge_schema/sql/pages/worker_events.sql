-- The newest actions by and about a worker.
SELECT at, actor, action, detail
FROM event
WHERE worker_id = %(worker_id)s
ORDER BY at DESC, id DESC
LIMIT %(count)s
