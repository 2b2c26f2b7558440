-- Asks the workers of a running job to give it back, as a spot notice would, maybe since the budget of
-- its `owner` is spent. Idempotent.
-- Locks: lease by rank.
WITH held AS MATERIALIZED (
    SELECT job_id, rank, worker_id, asked FROM lease
    WHERE job_id = %(job_id)s AND over IS NULL
    ORDER BY rank
    FOR UPDATE
),
asked AS (
    UPDATE lease SET asked = 'preempted'
    FROM held
    WHERE held.asked IS NULL AND lease.job_id = held.job_id AND lease.rank = held.rank
    RETURNING lease.job_id, lease.attempt
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT
        forge_now(), %(actor)s, 'asked to preempt', job_id,
        CASE WHEN %(owner)s::text IS NOT NULL THEN
            jsonb_build_object('owner', %(owner)s::text, 'attempt', attempt)
        END
    FROM (SELECT DISTINCT job_id, attempt FROM asked) AS of_jobs
)
SELECT job_id, pg_notify('forge', 'asked:' || worker_id) FROM held
