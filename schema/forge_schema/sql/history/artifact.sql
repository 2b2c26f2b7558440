-- One artifact of a job by its path, from its accepted attempt, or from its last one while there is
-- no outcome.
SELECT path, key, bytes, sha256, attempt, target, modified_at
FROM artifact
WHERE job_id = %(job_id)s AND path = %(path)s
    AND token = ANY(forge_tokens_shown(%(job_id)s))
ORDER BY token
LIMIT 1
