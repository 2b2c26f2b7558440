-- Records that removed jobs have no objects any more.
DELETE FROM tombstone WHERE job_id = ANY(%(job_ids)s::bigint[]) RETURNING job_id
