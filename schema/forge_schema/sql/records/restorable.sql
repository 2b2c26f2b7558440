-- The complete checkpoints that a job may be restored from, best first: its own newest ones, then
-- the one that it starts from, whose key is null if it is gone. `companions` are the manifests of
-- the other ranks. Last, with `passed_over`, those that it begins with no more.
SELECT
    found.job_id, found.attempt, found.number, found.key, found.files, found.bytes,
    found.passed_over,
    coalesce(
        (
            SELECT jsonb_agg(jsonb_build_object('rank', one.rank, 'key', one.key) ORDER BY one.rank)
            FROM forge_companions(found.master) AS one
        ), '[]'
    ) AS companions
FROM (
    (
        SELECT
            CASE WHEN kept.passed_over IS NULL THEN 1 ELSE 3 END AS place, kept.passed_over,
            kept.job_id, kept.token, kept.attempt, kept.number, kept.key, kept.files,
            kept.bytes, kept AS master
        FROM forge_complete_checkpoints(%(job_id)s) AS kept
        ORDER BY kept.passed_over IS NOT NULL, kept.token DESC, kept.number DESC
        LIMIT %(count)s
    )
    UNION ALL
    SELECT
        2, NULL, job.source_job_id, job.source_token, source.attempt, job.source_number, source.key,
        source.files, source.bytes, source
    FROM job
    LEFT JOIN checkpoint AS source
        ON source.job_id = job.source_job_id AND source.token = job.source_token
        AND source.number = job.source_number
    WHERE job.id = %(job_id)s AND job.source_job_id IS NOT NULL
) AS found
ORDER BY found.place, found.token DESC, found.number DESC
