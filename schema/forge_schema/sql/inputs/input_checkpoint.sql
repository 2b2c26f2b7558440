-- A complete checkpoint of another job that is an input of a lease's job, the best one if none is
-- named, with the manifests of all its ranks.
SELECT
    found.attempt, found.number,
    ARRAY[found.key] || ARRAY(
        SELECT part.key FROM forge_companions(found.master) AS part ORDER BY part.rank
    ) AS keys
FROM lease
JOIN job ON job.id = lease.job_id
CROSS JOIN LATERAL (
    SELECT kept.attempt, kept.number, kept.key, kept AS master
    FROM forge_complete_checkpoints(%(source_id)s) AS kept
    WHERE (%(attempt)s::smallint IS NULL OR kept.attempt = %(attempt)s::smallint)
        AND (%(number)s::integer IS NULL OR kept.number = %(number)s::integer)
    ORDER BY kept.passed_over IS NOT NULL, kept.token DESC, kept.number DESC
    LIMIT 1
) AS found
WHERE lease.job_id = %(job_id)s AND lease.token = %(token)s AND lease.nonce = %(nonce)s
    AND lease.over IS NULL AND %(source_id)s = ANY(forge_input_jobs(job))
