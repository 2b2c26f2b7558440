-- Gives failed and dead jobs fresh budgets and makes them ready, by id, of one owner or of any.
-- Where only some jobs of a sweep may run at once, they are held until it is their turn. Jobs that
-- may spend more than their owner may without asking, all of the request counted, are held until
-- they are approved, even if they were before.
-- A job that is to begin with an older checkpoint of its own passes over all newer ones from then on.
-- Attempts keep counting. Other jobs stay as they are. Idempotent: a repeated request returns what
-- the first one did. The first row of each job counts.
-- Locks: outcome, in the order of job ids, then checkpoint.
WITH wanted AS MATERIALIZED (
    SELECT
        id, lane_id, nice, owner, timeout_s, (spec ->> 'max_nodes')::integer AS machines,
        CASE WHEN spec ? 'parallel' THEN owner || '/' || sweep END AS line,
        (spec ->> 'parallel')::smallint AS parallel,
        forge_parts(owner, bundle_digest, spec) AS parts
    FROM job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND (%(owner)s::text IS NULL OR owner = %(owner)s)
),
over AS MATERIALIZED (
    SELECT outcome.job_id, outcome.state
    FROM wanted JOIN outcome ON outcome.job_id = wanted.id
    ORDER BY outcome.job_id
    FOR UPDATE OF outcome
),
chosen AS MATERIALIZED (
    SELECT kept.job_id, kept.token, kept.number
    FROM over CROSS JOIN LATERAL forge_complete_checkpoints(over.job_id) AS kept
    WHERE kept.attempt = %(from_attempt)s AND kept.number = %(from_number)s
),
reopened AS (
    DELETE FROM outcome USING over
    WHERE outcome.job_id = over.job_id AND over.state IN ('failed', 'dead')
        AND (%(from_attempt)s::smallint IS NULL OR EXISTS (SELECT FROM chosen))
    RETURNING outcome.job_id, outcome.attempt, outcome.reason
),
-- A job that waits is no archived one.
unarchived AS (
    UPDATE annotation SET archived = false FROM reopened
    WHERE annotation.job_id = reopened.job_id AND annotation.archived
),
passed AS (
    UPDATE checkpoint
    SET trusted = checkpoint.trusted OR checkpoint.number = chosen.number
            AND checkpoint.token = chosen.token,
        passed_over = CASE
            WHEN (checkpoint.token, checkpoint.number) > (chosen.token, chosen.number)
                THEN coalesce(checkpoint.passed_over, 0)
        END
    FROM chosen JOIN reopened USING (job_id)
    WHERE checkpoint.job_id = chosen.job_id AND checkpoint.rank = 0
        AND (checkpoint.token, checkpoint.number) >= (chosen.token, chosen.number)
),
-- One row for all jobs that may spend the same.
spending AS MATERIALIZED (
    SELECT alike.lane_id, alike.timeout_s, alike.machines, may.gpu_hours, may.cost
    FROM (
        SELECT DISTINCT wanted.lane_id, wanted.timeout_s, wanted.machines
        FROM reopened JOIN wanted ON wanted.id = reopened.job_id
    ) AS alike
    CROSS JOIN LATERAL forge_may_spend(alike.lane_id, alike.timeout_s, alike.machines) AS may
),
judged AS MATERIALIZED (
    SELECT
        wanted.*, reopened.attempt, reopened.reason,
        forge_ask(
            wanted.owner, wanted.timeout_s, count(*) OVER request,
            may.gpu_hours, sum(may.gpu_hours) OVER request, may.cost, sum(may.cost) OVER request
        ) AS approval
    FROM reopened
    JOIN wanted ON wanted.id = reopened.job_id
    JOIN spending AS may
        ON may.lane_id = wanted.lane_id AND may.timeout_s IS NOT DISTINCT FROM wanted.timeout_s
        AND may.machines IS NOT DISTINCT FROM wanted.machines
    WINDOW request AS (PARTITION BY wanted.owner)
),
again AS (
    INSERT INTO ready (lane_id, nice, job_id, attempt, ready_at, parts)
    SELECT lane_id, nice, id, attempt, forge_now(), parts
    FROM judged
    WHERE line IS NULL AND approval IS NULL
    RETURNING lane_id, parts
),
kept AS (
    INSERT INTO held (job_id, lane_id, nice, attempt, line, parallel, approval)
    SELECT id, lane_id, nice, attempt, line, parallel, approval
    FROM judged
    WHERE line IS NOT NULL OR approval IS NOT NULL
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT
        forge_now(), %(actor)s, 'retried', id,
        jsonb_strip_nulls(jsonb_build_object(
            'attempt', attempt, 'reason', reason, 'request', %(request)s::text,
            'checkpoint', %(from_attempt)s::text || '.' || %(from_number)s
        ))
    FROM judged
    UNION ALL
    SELECT forge_now(), %(actor)s, 'asked for approval', id, approval
    FROM judged
    WHERE approval IS NOT NULL
),
before AS MATERIALIZED (
    SELECT event.job_id
    FROM wanted JOIN event ON event.job_id = wanted.id
    WHERE event.action = 'retried' AND event.detail ->> 'request' = %(request)s
)
SELECT
    job_id, 'retried' AS became,
    (SELECT forge_wake(array_agg(lane_id), 'ready', array_agg(parts::text)) FROM again)
FROM reopened
UNION ALL
SELECT job_id, 'retried', NULL FROM before
UNION ALL
SELECT job_id, 'over', NULL FROM over
UNION ALL
SELECT id, 'unfinished', NULL FROM wanted
