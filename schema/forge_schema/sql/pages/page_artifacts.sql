-- The artifacts of a job after a path, from its accepted attempt, or from its last one while there
-- is no outcome, of all its ranks.
SELECT
    page.path, page.key, page.bytes, page.sha256, page.attempt, page.target, page.modified_at
FROM unnest(forge_tokens_shown(%(job_id)s)) AS shown (token)
CROSS JOIN LATERAL (
    SELECT path, key, bytes, sha256, attempt, target, modified_at
    FROM artifact
    WHERE job_id = %(job_id)s AND token = shown.token AND path > %(after)s
    ORDER BY path
    LIMIT %(count)s
) AS page
ORDER BY page.path
LIMIT %(count)s
