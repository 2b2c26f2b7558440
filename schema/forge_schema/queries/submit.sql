-- Submits any number of jobs; one whose idempotency key is taken inserts nothing, and one whose
-- key belongs to a job of other content keeps the whole batch out.
-- job -> ready or scheduled, event.
WITH clock AS MATERIALIZED (SELECT forge_now() AS now),
input AS MATERIALIZED (
    SELECT nextval(pg_get_serial_sequence('job', 'id')) AS id, j.*
    FROM jsonb_to_recordset(%(jobs)s) AS j (
        lane_id integer, owner text, name text, nice smallint, spec jsonb, bundle_digest text,
        idempotency_key text, content_digest text, max_failures smallint, max_losses smallint,
        max_preemptions smallint, backoff_s integer, timeout_s integer, delay_s double precision,
        kind job_kind, sweep text
    )
),
conflict AS MATERIALIZED (
    SELECT idempotency_key FROM input
    WHERE content_digest <> (
        SELECT job.content_digest FROM job
        WHERE job.owner = input.owner AND job.idempotency_key = input.idempotency_key
    )
),
inserted AS (
    INSERT INTO job (
        id, lane_id, owner, name, nice, spec, bundle_digest, idempotency_key, content_digest,
        max_failures, max_losses, max_preemptions, backoff_s, timeout_s, run_at, submitted_at,
        kind, sweep
    )
    SELECT
        id, lane_id, owner, name, nice, spec, bundle_digest, idempotency_key, content_digest,
        max_failures, max_losses, max_preemptions, backoff_s, timeout_s,
        CASE WHEN delay_s > 0 THEN now + make_interval(secs => delay_s) END, now, kind, sweep
    FROM input, clock
    WHERE NOT EXISTS (SELECT FROM conflict)
    ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING id, lane_id, nice, run_at, submitted_at
),
now_ready AS (
    INSERT INTO ready (lane_id, nice, job_id, ready_at)
    SELECT lane_id, nice, id, submitted_at FROM inserted WHERE run_at IS NULL
),
later AS (
    INSERT INTO scheduled (job_id, lane_id, nice, run_at)
    SELECT id, lane_id, nice, run_at FROM inserted WHERE run_at IS NOT NULL
),
told AS (
    INSERT INTO event (at, actor, action, job_id)
    SELECT submitted_at, %(actor)s, 'submitted', id FROM inserted
)
SELECT
    ARRAY(SELECT id FROM input) AS ids,
    ARRAY(SELECT id FROM inserted) AS inserted,
    ARRAY(SELECT idempotency_key FROM conflict) AS conflicts,
    pg_notify('forge', 'ready')
