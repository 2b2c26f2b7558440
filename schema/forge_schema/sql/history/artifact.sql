-- One artifact of a job by its path: of its accepted attempt, or of its last one before there is an
-- outcome.
SELECT path, key, bytes, sha256, attempt
FROM artifact
WHERE job_id = %(job_id)s AND path = %(path)s
    AND token = coalesce(
        (SELECT token FROM outcome WHERE job_id = %(job_id)s),
        (SELECT max(token) FROM artifact WHERE job_id = %(job_id)s)
    )
