-- The artifacts of a job's accepted attempt, or of its last one while there is no outcome, of all its
-- ranks: after a path, up to a number; or all.
SELECT path, key, bytes, sha256, attempt, target, modified_at
FROM artifact
WHERE job_id = %(job_id)s AND token = ANY(forge_tokens_shown(%(job_id)s))
    AND (%(after)s::text IS NULL OR path > %(after)s)
ORDER BY path
LIMIT %(count)s
