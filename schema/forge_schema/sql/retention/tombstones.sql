-- The removed jobs whose objects are still to be deleted, after an id.
SELECT job_id FROM tombstone WHERE job_id > %(after)s ORDER BY job_id LIMIT %(count)s
