-- Submits any number of jobs. A job whose idempotency key is in use inserts nothing. The whole
-- batch is refused if a key belongs to a job with different content, if a new job starts from a
-- missing checkpoint or waits for an unknown job, or if its owner has not uploaded the content that
-- it names. A job that waits for others, for approval, or for its turn in a sweep, is held; a
-- trigger on `held` releases it if it need not wait any more. All jobs of one owner in the batch
-- count together for what the owner may spend without approval.
-- The jobs of a group, in the order of the batch, share all but their names, keys and a part of the
-- spec. Sources and uploads are looked up once for a group. `submit_alike` has the common case.
-- job -> job_tag, ready, scheduled or held, dependency, event, upload.
WITH clock AS MATERIALIZED (SELECT forge_now() AS now),
groups AS MATERIALIZED (
    SELECT
        s.*, found.job_id AS source_job_id, found.token AS source_token,
        found.number AS source_number,
        s.from_job IS NOT NULL AND found.job_id IS NULL AS lacks_source,
        (
            SELECT min(edge.needs_id::bigint)
            FROM unnest(enum_range(NULL::dependency_kind)) AS kinds (kind)
            CROSS JOIN LATERAL jsonb_array_elements_text(s.shared -> kinds.kind::text)
                AS edge (needs_id)
            WHERE NOT EXISTS (
                SELECT FROM job
                WHERE job.id = edge.needs_id::bigint AND (%(any_owner)s OR job.owner = s.owner)
            )
        ) AS unknown,
        NOT %(any_owner)s AND EXISTS (
            SELECT FROM (
                VALUES (s.bundle_digest), (s.shared ->> 'image_tar'), (s.shared #>> '{git,diff}')
            ) AS named (sha256)
            WHERE named.sha256 IS NOT NULL
                AND NOT EXISTS (
                    SELECT FROM upload
                    WHERE upload.owner = s.owner AND upload.sha256 = named.sha256
                )
        ) AS lacks_upload
    FROM json_to_recordset(%(groups)s) AS s (
        lane_id integer, owner text, nice smallint, shared jsonb, bundle_digest text,
        max_failures smallint, max_losses smallint, max_preemptions smallint, backoff_s integer,
        timeout_s integer, delay_s double precision, kind job_kind, sweep text, experiment text,
        from_job bigint, from_attempt smallint, from_number integer, requests json
    )
    -- Locked, so that it cannot be thinned out before this commits, and neither can the parts that
    -- other ranks have stored of it.
    LEFT JOIN LATERAL (
        SELECT checkpoint.job_id, checkpoint.token, checkpoint.number
        FROM checkpoint JOIN job ON job.id = checkpoint.job_id
        WHERE checkpoint.job_id = s.from_job AND (%(any_owner)s OR job.owner = s.owner)
            AND checkpoint.rank = 0
            AND (checkpoint.nodes = 1 OR forge_is_complete(checkpoint))
            AND (s.from_attempt IS NULL OR checkpoint.attempt = s.from_attempt)
            AND (s.from_number IS NULL OR checkpoint.number = s.from_number)
        ORDER BY checkpoint.passed_over IS NOT NULL, checkpoint.token DESC, checkpoint.number DESC
        LIMIT 1
        FOR KEY SHARE OF checkpoint
    ) AS found ON true
),
-- One row for all jobs that may spend the same, if their owner may not spend any amount.
spending AS MATERIALIZED (
    SELECT alike.*, may.gpu_hours, may.cost
    FROM (
        SELECT
            groups.owner, groups.lane_id, groups.timeout_s,
            (groups.shared ->> 'max_nodes')::integer AS machines,
            sum(json_array_length(groups.requests)) AS jobs
        FROM groups
        GROUP BY groups.owner, groups.lane_id, groups.timeout_s, machines
    ) AS alike
    CROSS JOIN LATERAL forge_may_spend(alike.lane_id, alike.timeout_s, alike.machines) AS may
    WHERE may.gpu_hours IS NOT NULL
),
judged AS MATERIALIZED (
    SELECT
        lane_id, timeout_s, machines,
        forge_ask(
            owner, timeout_s, (sum(jobs) OVER request)::bigint,
            gpu_hours, sum(jobs * gpu_hours) OVER request, cost, sum(jobs * cost) OVER request
        ) AS approval
    FROM spending
    WINDOW request AS (PARTITION BY owner)
),
-- The name of the sequence is looked up once, not for each job. A job that is only rehearsed brings
-- its id, for a sequence would not take back its own.
input AS MATERIALIZED (
    SELECT
        coalesce(
            %(rehearsed_id)s::bigint,
            nextval((SELECT pg_get_serial_sequence('job', 'id')::regclass))
        ) AS id,
        each.*
    FROM (
        SELECT
            r.place, r.name, r.asked_key, r.idempotency_key, r.content_digest,
            s.shared || r.varied AS spec, s.lane_id, s.owner, s.nice, s.bundle_digest,
            s.max_failures, s.max_losses, s.max_preemptions, s.backoff_s, s.timeout_s, s.delay_s,
            s.kind, s.sweep, s.experiment, s.source_job_id, s.source_token, s.source_number,
            s.lacks_source, s.lacks_upload, s.unknown
        FROM groups AS s, json_to_recordset(s.requests) AS r (
            place integer, name text, varied jsonb, asked_key text, idempotency_key text,
            content_digest text
        )
    ) AS each
),
conflict AS MATERIALIZED (
    SELECT asked_key FROM input
    WHERE asked_key IS NOT NULL
        AND content_digest <> (
            SELECT job.content_digest FROM job
            WHERE job.owner = input.owner AND job.idempotency_key = input.asked_key
        )
),
lacking AS MATERIALIZED (
    SELECT place, lacks_source, unknown FROM input
    WHERE (lacks_source OR lacks_upload OR unknown IS NOT NULL)
        AND NOT EXISTS (
            SELECT FROM job
            WHERE job.owner = input.owner AND job.idempotency_key = input.idempotency_key
        )
),
uploaded AS (
    INSERT INTO upload (owner, sha256, created_at)
    SELECT DISTINCT groups.owner, named.sha256, clock.now
    FROM groups, clock, LATERAL (
        VALUES
            (groups.bundle_digest),
            (groups.shared ->> 'image_tar'),
            (groups.shared #>> '{git,diff}')
    ) AS named (sha256)
    WHERE %(any_owner)s AND named.sha256 IS NOT NULL
    ORDER BY groups.owner, named.sha256
    ON CONFLICT DO NOTHING
),
inserted AS (
    INSERT INTO job (
        id, lane_id, owner, name, nice, spec, bundle_digest, idempotency_key, content_digest,
        max_failures, max_losses, max_preemptions, backoff_s, timeout_s, run_at, submitted_at,
        submitted_by, kind, sweep, experiment, source_job_id, source_token, source_number
    )
    SELECT
        id, lane_id, owner, name, nice, spec, bundle_digest, idempotency_key, content_digest,
        max_failures, max_losses, max_preemptions, backoff_s, timeout_s,
        CASE WHEN delay_s > 0 THEN now + make_interval(secs => delay_s) END, now,
        %(actor)s, kind, sweep, experiment, source_job_id, source_token, source_number
    FROM input, clock
    WHERE NOT EXISTS (SELECT FROM conflict) AND NOT EXISTS (SELECT FROM lacking)
    ON CONFLICT (owner, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
    RETURNING
        id, lane_id, nice, run_at, submitted_at,
        -- Listed once, not for each job.
        CASE WHEN spec ?| (SELECT enum_range(NULL::dependency_kind)::text[]) THEN spec END AS waits,
        CASE WHEN spec ? 'parallel' THEN owner || '/' || sweep END AS line,
        (spec ->> 'parallel')::smallint AS parallel, owner, spec -> 'tags' AS tags,
        forge_parts(owner, bundle_digest, spec) AS parts,
        (
            SELECT judged.approval FROM judged
            WHERE judged.lane_id = job.lane_id AND judged.timeout_s IS NOT DISTINCT FROM job.timeout_s
                AND judged.machines IS NOT DISTINCT FROM (job.spec ->> 'max_nodes')::integer
        ) AS approval
),
placed AS MATERIALIZED (
    SELECT *, num_nonnulls(waits, line, approval) > 0 AS held FROM inserted
),
waiting AS (
    INSERT INTO held (job_id, lane_id, nice, line, parallel, approval)
    SELECT id, lane_id, nice, line, parallel, approval FROM placed WHERE held
),
edges AS (
    INSERT INTO dependency (job_id, needs_id, kind)
    SELECT inserted.id, edge.needs_id::bigint, kinds.kind
    FROM inserted
    CROSS JOIN unnest(enum_range(NULL::dependency_kind)) AS kinds (kind)
    CROSS JOIN LATERAL jsonb_array_elements_text(inserted.waits -> kinds.kind::text)
        AS edge (needs_id)
    WHERE inserted.waits IS NOT NULL
),
tagged AS (
    INSERT INTO job_tag (job_id, tag, owner)
    SELECT inserted.id, own.tag, inserted.owner
    FROM inserted CROSS JOIN LATERAL jsonb_array_elements_text(inserted.tags) AS own (tag)
    WHERE inserted.tags IS NOT NULL
    ON CONFLICT DO NOTHING
),
now_ready AS (
    INSERT INTO ready (lane_id, nice, job_id, ready_at, parts)
    SELECT lane_id, nice, id, submitted_at, parts
    FROM placed
    WHERE run_at IS NULL AND NOT held
    RETURNING lane_id, parts
),
later AS (
    INSERT INTO scheduled (job_id, lane_id, nice, run_at)
    SELECT id, lane_id, nice, run_at
    FROM placed
    WHERE run_at IS NOT NULL AND NOT held
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT submitted_at, %(actor)s, 'asked for approval', id, approval
    FROM placed
    WHERE approval IS NOT NULL
)
SELECT
    ARRAY(SELECT id FROM input) AS ids,
    ARRAY(SELECT id FROM inserted) AS inserted,
    ARRAY(SELECT asked_key FROM conflict) AS conflicts,
    (SELECT min(unknown) FROM lacking) AS unknown_job,
    ARRAY(SELECT place FROM lacking WHERE lacks_source) AS sourceless,
    ARRAY(SELECT place FROM lacking WHERE NOT lacks_source) AS not_uploaded,
    (
        SELECT forge_wake(array_agg(lane_id), 'ready', array_agg(parts::text))
        -- These rows are there by now, as gangs are formed of them.
        FROM now_ready
    )
