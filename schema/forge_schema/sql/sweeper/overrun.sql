-- The leases whose holders renew them but do not act, and why each is to be ended: asked to end the
-- job, the holder did not do so within its grace period and `patience`, or did not store its output
-- within `storing`; or it has prepared the job for longer than `preparing`. A job past its time
-- limit has timed out, even if it was asked for back before. A member of a gang that did not fetch its
-- lease within `fetching` ends the run, at no cost: its worker died, and the others wait for it.
-- The time of the request is recorded here, so that it counts only while a sweeper runs.
-- Locks: lease by job and rank.
WITH asked_since AS MATERIALIZED (
    SELECT job_id, rank FROM lease
    WHERE asked IS NOT NULL AND asked_at IS NULL AND over IS NULL
    ORDER BY job_id, rank
    FOR UPDATE
),
noted AS (
    UPDATE lease SET asked_at = forge_now() FROM asked_since AS since
    WHERE lease.job_id = since.job_id AND lease.rank = since.rank
)
SELECT
    job_id, token, nonce,
    CASE
        WHEN asked = 'preempted' AND deadline_at < forge_now() THEN 'timeout'
        WHEN asked = 'ended' OR unfetched AND asked IS NULL THEN 'run_ended'
        ELSE coalesce(asked::text, 'start_failed')
    END AS reason,
    unfetched
FROM lease
CROSS JOIN LATERAL (SELECT nodes > 1 AND phase = 'claimed' AS unfetched) AS its
WHERE over IS NULL AND CASE
    WHEN unfetched THEN claimed_at < forge_now() - %(fetching)s::interval
    WHEN asked IS NULL
        THEN started_at IS NULL AND phase IN ('claimed', 'preparing')
            AND claimed_at < forge_now() - %(preparing)s::interval
    ELSE asked_at < forge_now()
        - CASE phase WHEN 'finishing' THEN %(storing)s::interval ELSE %(patience)s::interval END
        - coalesce(
            (
                SELECT make_interval(secs => (job.spec ->> 'grace_s')::double precision)
                FROM job WHERE job.id = lease.job_id
            ),
            '0'
        )
END
ORDER BY job_id
LIMIT %(count)s
