-- The artifacts of a job's accepted attempt, or of its last one while there is no outcome.
SELECT path, key, bytes, sha256, attempt
FROM artifact
WHERE job_id = %(job_id)s
    AND token = coalesce(
        (SELECT token FROM outcome WHERE job_id = %(job_id)s),
        (SELECT max(token) FROM artifact WHERE job_id = %(job_id)s)
    )
ORDER BY path
