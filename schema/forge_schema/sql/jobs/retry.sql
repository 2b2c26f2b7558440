-- Gives failed and dead jobs fresh budgets and makes them ready, by id, of one owner or of any.
-- Where only some jobs of a sweep may run at once, they are held until it is their turn.
-- Attempts keep counting. Other jobs stay as they are. Idempotent: a repeated request returns what
-- the first one did. The first row of each job counts.
-- Locks: outcome, in the order of job ids.
WITH wanted AS MATERIALIZED (
    SELECT
        id, lane_id, nice, owner || '/' || sweep AS line,
        (spec ->> 'parallel')::smallint AS parallel
    FROM job
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
    WHERE wanted.parallel IS NULL
    RETURNING lane_id
),
in_line AS (
    INSERT INTO held (job_id, lane_id, nice, attempt, line, parallel)
    SELECT
        wanted.id, wanted.lane_id, wanted.nice, reopened.attempt, wanted.line, wanted.parallel
    FROM reopened JOIN wanted ON wanted.id = reopened.job_id
    WHERE wanted.parallel IS NOT NULL
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
    job_id, 'retried' AS became,
    (SELECT forge_wake(ARRAY(SELECT lane_id FROM again)))
FROM reopened
UNION ALL
SELECT job_id, 'retried', NULL FROM before
UNION ALL
SELECT job_id, 'over', NULL FROM over
UNION ALL
SELECT id, 'unfinished', NULL FROM wanted
