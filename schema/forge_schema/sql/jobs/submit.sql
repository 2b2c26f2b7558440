-- Submits any number of jobs. A job whose idempotency key is in use inserts nothing. The whole
-- batch is refused if a key belongs to a job with different content, if a new job starts from a
-- missing checkpoint, or if its owner has not uploaded the content that it names.
-- The jobs of a sweep, in the order of the batch, share all but their names, keys and a part of the
-- spec. A run is one request that stands `times` times in a row, from the place `first` of the
-- batch on. What is looked up is looked up once for a run.
-- job -> ready or scheduled, event, upload.
WITH clock AS MATERIALIZED (SELECT forge_now() AS now),
run AS MATERIALIZED (
    SELECT
        r.first, r.times, r.name, r.asked_key, r.content_digest, s.shared || r.varied AS spec,
        coalesce(r.asked_key, %(stem)s || r.first) AS first_key,
        s.lane_id, s.owner, s.nice, s.bundle_digest, s.max_failures, s.max_losses,
        s.max_preemptions, s.backoff_s, s.timeout_s, s.delay_s, s.kind, s.sweep, s.from_job,
        s.from_attempt, s.from_number
    FROM json_to_recordset(%(sweeps)s) AS s (
        lane_id integer, owner text, nice smallint, shared jsonb, bundle_digest text,
        max_failures smallint, max_losses smallint, max_preemptions smallint, backoff_s integer,
        timeout_s integer, delay_s double precision, kind job_kind, sweep text, from_job bigint,
        from_attempt smallint, from_number integer, runs json
    ), json_to_recordset(s.runs) AS r (
        first integer, times integer, name text, varied jsonb, asked_key text, content_digest text
    )
),
conflict AS MATERIALIZED (
    SELECT asked_key FROM run
    WHERE asked_key IS NOT NULL
        AND content_digest <> (
            SELECT job.content_digest FROM job
            WHERE job.owner = run.owner AND job.idempotency_key = run.asked_key
        )
),
-- Locked, so that it cannot be thinned out before this commits.
sourced AS MATERIALIZED (
    SELECT
        run.*, found.job_id AS source_job_id, found.token AS source_token,
        found.number AS source_number
    FROM run
    LEFT JOIN LATERAL (
        SELECT checkpoint.job_id, checkpoint.token, checkpoint.number
        FROM checkpoint JOIN job ON job.id = checkpoint.job_id
        WHERE checkpoint.job_id = from_job AND (%(any_owner)s OR job.owner = run.owner)
            AND (from_attempt IS NULL OR checkpoint.attempt = from_attempt)
            AND (from_number IS NULL OR checkpoint.number = from_number)
        ORDER BY checkpoint.token DESC, checkpoint.number DESC
        LIMIT 1
        FOR KEY SHARE OF checkpoint
    ) AS found ON true
),
sourceless AS MATERIALIZED (
    SELECT first FROM sourced
    WHERE from_job IS NOT NULL AND source_job_id IS NULL
        AND NOT EXISTS (
            SELECT FROM job
            WHERE job.owner = sourced.owner AND job.idempotency_key = sourced.first_key
        )
),
named AS MATERIALIZED (
    SELECT run.first, run.owner, run.first_key, digest.sha256
    FROM run CROSS JOIN LATERAL (
        VALUES (run.bundle_digest), (run.spec ->> 'image_tar')
    ) AS digest (sha256)
    WHERE digest.sha256 IS NOT NULL
),
not_uploaded AS MATERIALIZED (
    SELECT first FROM named
    WHERE NOT %(any_owner)s
        AND NOT EXISTS (
            SELECT FROM upload
            WHERE upload.owner = named.owner AND upload.sha256 = named.sha256
        )
        AND NOT EXISTS (
            SELECT FROM job
            WHERE job.owner = named.owner AND job.idempotency_key = named.first_key
        )
),
uploaded AS (
    INSERT INTO upload (owner, sha256, created_at)
    SELECT DISTINCT named.owner, named.sha256, clock.now
    FROM named, clock
    WHERE %(any_owner)s
    ORDER BY named.owner, named.sha256
    ON CONFLICT DO NOTHING
),
-- The name of the sequence is looked up once, not for each job.
input AS MATERIALIZED (
    SELECT
        nextval((SELECT pg_get_serial_sequence('job', 'id')::regclass)) AS id, sourced.*,
        coalesce(asked_key, %(stem)s || first + n) AS idempotency_key
    FROM sourced CROSS JOIN LATERAL generate_series(0, times - 1) AS n
),
inserted AS (
    INSERT INTO job (
        id, lane_id, owner, name, nice, spec, bundle_digest, idempotency_key, content_digest,
        max_failures, max_losses, max_preemptions, backoff_s, timeout_s, run_at, submitted_at,
        kind, sweep, source_job_id, source_token, source_number
    )
    SELECT
        id, lane_id, owner, name, nice, spec, bundle_digest, idempotency_key, content_digest,
        max_failures, max_losses, max_preemptions, backoff_s, timeout_s,
        CASE WHEN delay_s > 0 THEN now + make_interval(secs => delay_s) END, now, kind, sweep,
        source_job_id, source_token, source_number
    FROM input, clock
    WHERE NOT EXISTS (SELECT FROM conflict) AND NOT EXISTS (SELECT FROM sourceless)
        AND NOT EXISTS (SELECT FROM not_uploaded)
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
    ARRAY(SELECT asked_key FROM conflict) AS conflicts,
    ARRAY(SELECT first FROM sourceless) AS sourceless,
    ARRAY(SELECT first FROM not_uploaded) AS not_uploaded,
    pg_notify('forge', 'ready')
