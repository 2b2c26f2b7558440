-- The artifacts of another job that are an input of a lease's job, after a path: those at `path` or
-- below it. They are of the same owner, and the job names the other one.
SELECT page.path, page.key, page.bytes, page.sha256, page.target
FROM lease
JOIN job ON job.id = lease.job_id
CROSS JOIN LATERAL unnest(forge_tokens_shown(%(source_id)s)) AS shown (token)
CROSS JOIN LATERAL (
    SELECT path, key, bytes, sha256, target
    FROM artifact
    WHERE job_id = %(source_id)s AND token = shown.token AND path > %(after)s
        AND (%(path)s = '' OR path = %(path)s OR starts_with(path, %(path)s || '/'))
    ORDER BY path
    LIMIT %(count)s
) AS page
WHERE lease.job_id = %(job_id)s AND lease.token = %(token)s AND lease.nonce = %(nonce)s
    AND lease.over IS NULL AND %(source_id)s = ANY(forge_input_jobs(job))
ORDER BY page.path
LIMIT %(count)s
