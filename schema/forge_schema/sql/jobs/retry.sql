-- Gives a failed or dead job fresh budgets and makes it ready; its attempts go on counting.
-- The same request repeated changes nothing, and is told that it was done.
WITH reopened AS (
    DELETE FROM outcome
    WHERE job_id = %(job_id)s AND state IN ('failed', 'dead')
    RETURNING job_id, attempt, reason
),
again AS (
    INSERT INTO ready (lane_id, nice, job_id, attempt, ready_at)
    SELECT job.lane_id, job.nice, job.id, reopened.attempt, forge_now()
    FROM reopened JOIN job ON job.id = reopened.job_id
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT
        forge_now(), %(actor)s, 'retried', job_id,
        jsonb_build_object('attempt', attempt, 'reason', reason, 'request', %(request)s::text)
    FROM reopened
)
SELECT job_id, pg_notify('forge', 'ready') FROM reopened
UNION ALL
SELECT job_id, NULL FROM event
WHERE job_id = %(job_id)s AND action = 'retried' AND detail ->> 'request' = %(request)s
