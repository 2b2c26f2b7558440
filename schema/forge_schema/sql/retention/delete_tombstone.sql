-- Records that a removed job has no objects any more.
DELETE FROM tombstone WHERE job_id = %(job_id)s RETURNING job_id
