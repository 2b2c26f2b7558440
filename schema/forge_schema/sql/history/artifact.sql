-- One artifact of a job by its path, from its accepted attempt, or from its last one while there is
-- no outcome.
SELECT path, key, bytes, sha256, attempt
FROM artifact
WHERE job_id = %(job_id)s AND path = %(path)s
    AND token = coalesce(
        (SELECT token FROM outcome WHERE job_id = %(job_id)s),
        (SELECT max(token) FROM artifact WHERE job_id = %(job_id)s)
    )
