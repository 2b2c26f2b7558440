-- Gives failed and dead jobs among some, of one owner or of all, fresh budgets and makes them
-- ready; all others stay as they are. The same request repeated is told what it did the first time.
WITH wanted AS MATERIALIZED (
    SELECT id, lane_id, nice FROM job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND (%(owner)s::text IS NULL OR owner = %(owner)s)
),
over AS MATERIALIZED (
    SELECT outcome.job_id, outcome.state
    FROM wanted JOIN outcome ON outcome.job_id = wanted.id
    ORDER BY outcome.job_id
    FOR UPDATE OF outcome
),
reopened AS (
    DELETE FROM outcome USING over
    WHERE outcome.job_id = over.job_id AND over.state IN ('failed', 'dead')
    RETURNING outcome.job_id, outcome.attempt, outcome.reason
),
again AS (
    INSERT INTO ready (lane_id, nice, job_id, attempt, ready_at)
    SELECT wanted.lane_id, wanted.nice, wanted.id, reopened.attempt, forge_now()
    FROM reopened JOIN wanted ON wanted.id = reopened.job_id
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT
        forge_now(), %(actor)s, 'retried', job_id,
        jsonb_build_object('attempt', attempt, 'reason', reason, 'request', %(request)s::text)
    FROM reopened
),
before AS MATERIALIZED (
    SELECT event.job_id
    FROM wanted JOIN event ON event.job_id = wanted.id
    WHERE event.action = 'retried' AND event.detail ->> 'request' = %(request)s
)
SELECT
    ARRAY(SELECT id FROM wanted) AS wanted,
    ARRAY(SELECT job_id FROM reopened UNION SELECT job_id FROM before) AS retried,
    ARRAY(SELECT job_id FROM over WHERE state NOT IN ('failed', 'dead')) AS over,
    CASE WHEN EXISTS (SELECT FROM reopened) THEN pg_notify('forge', 'ready') END
