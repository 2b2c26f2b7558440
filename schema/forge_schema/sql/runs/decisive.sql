-- The runs of which all members are over, each by the lease of the member that decides how it ended:
-- the first that did not succeed, echoes of others last; else the first rank. Where the launcher
-- ends the run with the master's success, that is such an end too. With `job_ids`, only of those.
-- If members could not reach another one, that one decides, and not the first to notice it.
WITH first AS MATERIALIZED (
    SELECT DISTINCT ON (member.job_id) member.job_id, member.rank, member.over
    FROM lease AS member
    JOIN job ON job.id = member.job_id
    CROSS JOIN LATERAL (
        SELECT
            member.over ->> 'reason' <> 'succeeded'
            OR member.rank = 0
            AND coalesce(job.spec ->> 'launcher' = 'ray', false) AS it
    ) AS ends
    WHERE member.over IS NOT NULL
        AND (%(job_ids)s::bigint[] IS NULL OR member.job_id = ANY(%(job_ids)s::bigint[]))
        AND NOT EXISTS (
            SELECT FROM lease AS other WHERE other.job_id = member.job_id AND other.over IS NULL
        )
    ORDER BY
        member.job_id, ends.it DESC,
        CASE WHEN ends.it THEN (member.over ->> 'level')::integer END,
        CASE WHEN ends.it THEN (member.over ->> 'at')::timestamptz END,
        member.rank
),
blamed AS (
    SELECT first.job_id, min(unreached.rank) AS rank
    FROM first CROSS JOIN LATERAL forge_unreached(first.job_id) AS unreached
    WHERE first.over ->> 'reason' = 'preflight_failed'
    GROUP BY first.job_id
)
SELECT
    member.job_id, member.token, member.nonce, member.rank, member.attempt,
    first.over ->> 'reason' AS reason, (first.over ->> 'exit_code')::integer AS exit_code,
    first.over ->> 'detail' AS detail, member.over -> 'usage' AS usage,
    coalesce(worker.name, former_worker.name, member.worker_id::text) AS worker
FROM first
LEFT JOIN blamed ON blamed.job_id = first.job_id
JOIN lease AS member
    ON member.job_id = first.job_id AND member.rank = coalesce(blamed.rank, first.rank)
LEFT JOIN worker ON worker.id = member.worker_id
LEFT JOIN former_worker ON former_worker.id = member.worker_id
