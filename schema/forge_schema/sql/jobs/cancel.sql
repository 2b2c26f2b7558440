-- Cancels a job: at once where it waits, by asking its worker where it runs.
-- Says nothing about a job that moved between the places meanwhile; the caller asks again.
WITH from_ready AS (
    DELETE FROM ready USING job
    WHERE job.id = %(job_id)s
        AND ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
    RETURNING ready.job_id, ready.attempt
),
from_scheduled AS (
    DELETE FROM scheduled WHERE job_id = %(job_id)s RETURNING job_id, attempt
),
ended AS (
    INSERT INTO outcome (job_id, state, reason, attempt, finished_at)
    SELECT job_id, 'cancelled', 'cancelled', attempt, forge_now()
    FROM (SELECT * FROM from_ready UNION ALL SELECT * FROM from_scheduled) AS waiting
    RETURNING job_id
),
held AS MATERIALIZED (
    SELECT job_id, rank, worker_id, asked FROM lease WHERE job_id = %(job_id)s FOR UPDATE
),
asked AS (
    UPDATE lease SET asked = 'cancelled'
    FROM held
    WHERE held.asked IS DISTINCT FROM 'cancelled'
        AND lease.job_id = held.job_id AND lease.rank = held.rank
    RETURNING lease.job_id
),
told AS (
    INSERT INTO event (at, actor, action, job_id)
    SELECT forge_now(), %(actor)s, 'cancelled', job_id FROM ended
    UNION ALL
    SELECT DISTINCT forge_now(), %(actor)s, 'asked to cancel', job_id FROM asked
)
SELECT 'cancelled' AS state, pg_notify('forge', 'cancelled') FROM ended
UNION ALL
SELECT 'running', pg_notify('forge', 'asked:' || worker_id) FROM held
UNION ALL
SELECT state::text, NULL FROM outcome WHERE job_id = %(job_id)s
