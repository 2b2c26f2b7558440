-- The removed jobs whose objects are to be deleted now, after an id.
SELECT job_id FROM tombstone
WHERE job_id > %(after)s AND removed_at <= forge_now()
ORDER BY job_id LIMIT %(count)s
