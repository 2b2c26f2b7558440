-- Records how far a member of a run has come and what it tells the others, and returns all members of
-- the run; nothing if its lease is lost. Only news is written: a member that waits asks again and
-- again. A step is never taken back.
-- Locks: lease.
WITH own AS MATERIALIZED (
    SELECT job_id, rank, attempt, asked, greatest(step, %(step)s::smallint) AS step
    FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
),
told AS (
    UPDATE lease SET step = own.step, member = %(member)s::jsonb
    FROM own
    WHERE lease.job_id = own.job_id AND lease.rank = own.rank
        AND lease.token = %(token)s AND lease.nonce = %(nonce)s AND lease.over IS NULL
        AND (lease.step <> own.step OR lease.member IS DISTINCT FROM %(member)s::jsonb)
)
SELECT
    own.asked, lease.rank,
    coalesce(worker.name, former_worker.name, lease.worker_id::text) AS worker,
    CASE WHEN lease.rank = own.rank THEN own.step ELSE lease.step END AS step,
    CASE WHEN lease.rank = own.rank THEN %(member)s::jsonb ELSE coalesce(lease.member, '{}') END
        AS details,
    lease.over IS NOT NULL AS over, lease.phase
FROM own
JOIN lease ON lease.job_id = own.job_id AND lease.attempt = own.attempt
LEFT JOIN worker ON worker.id = lease.worker_id
LEFT JOIN former_worker ON former_worker.id = lease.worker_id
ORDER BY lease.rank
