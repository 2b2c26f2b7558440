-- A page of jobs that match a filter, newest first, before an id. Each method (`by_…`) finds a
-- bounded number of candidates by an index; the newest of these are examined until the page is
-- full. Every row has the number of candidates (`looked`), its bound (`reach`), the last candidate,
-- and whether older ones are outside the filter. If no job matches, there is one row with only
-- these columns.
WITH lanes AS MATERIALIZED (
    SELECT lane.id
    FROM lane JOIN shape ON shape.id = lane.shape_id
    WHERE %(in_lanes)s
        AND (%(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[]))
        AND (%(owners)s::text[] IS NULL OR lane.owner LIKE ANY(%(owners)s))
        AND (
            %(teams)s::text[] IS NULL
            OR lane.owner IN (SELECT o.owner FROM owner_quota AS o WHERE o.team LIKE ANY(%(teams)s))
        )
        AND (%(queues)s::text[] IS NULL OR lane.queue LIKE ANY(%(queues)s))
        AND NOT EXISTS (
            SELECT FROM jsonb_array_elements(%(labels)s::jsonb) AS term (any_of)
            WHERE NOT EXISTS (
                SELECT
                FROM jsonb_array_elements(term.any_of) AS wanted (label)
                JOIN jsonb_each_text(shape.labels) AS asked (name, value)
                    ON asked.name = wanted.label ->> 0 AND asked.value LIKE (wanted.label ->> 1)
            )
        )
),
owned AS MATERIALIZED (
    SELECT count(*) * cardinality(%(some_tags)s::text[]) AS tags
    FROM owner_quota
    WHERE %(by_tag)s
        AND (%(scope)s::text[] IS NULL OR owner_quota.owner = ANY(%(scope)s::text[]))
),
-- Fewer of each lane, or of each owner's tag, if there are many: all are read before the newest are
-- known.
span AS MATERIALIZED (
    SELECT
        least(
            %(look)s::bigint,
            greatest(
                %(count)s::bigint,
                100000 / greatest((SELECT count(*) FROM lanes), (SELECT tags FROM owned), 1)
            )
        ) AS reach
),
-- Few enough to sort; if there are more, most of the newest jobs match anyway.
sortable AS MATERIALIZED (
    SELECT count(*) <= %(sortable)s::bigint AS few
    FROM (SELECT FROM ready WHERE %(by_ready)s LIMIT %(sortable)s::bigint + 1) AS counted
),
-- The lanes that a candidate must be in; NULL means any.
fitting AS MATERIALIZED (
    SELECT CASE WHEN %(in_lanes)s THEN ARRAY(SELECT id FROM lanes) END AS lane_ids
),
machines AS MATERIALIZED (
    SELECT CASE
        WHEN %(workers)s::text[] IS NOT NULL
            THEN ARRAY(SELECT id FROM worker WHERE name LIKE ANY(%(workers)s))
    END AS worker_ids
),
candidates AS MATERIALIZED (
    SELECT job_id FROM (
        (
            SELECT id AS job_id FROM job
            WHERE (%(by_all)s OR (%(by_ready)s AND NOT %(in_lanes)s AND NOT (SELECT few FROM sortable)))
                AND id < %(before)s::bigint
            ORDER BY id DESC LIMIT (SELECT reach FROM span)
        )
        UNION
        SELECT newest.id
        FROM lanes CROSS JOIN LATERAL (
            SELECT job.id FROM job
            WHERE job.lane_id = lanes.id AND job.id < %(before)s::bigint
                AND (%(by_lane)s OR (%(by_ready)s AND NOT (SELECT few FROM sortable)))
            ORDER BY job.id DESC LIMIT (SELECT reach FROM span)
        ) AS newest
        UNION
        SELECT newest.id
        FROM owner_quota
        CROSS JOIN unnest(%(sweeps)s::text[]) AS named (sweep)
        CROSS JOIN LATERAL (
            SELECT job.id FROM job
            WHERE %(by_sweep)s AND job.owner = owner_quota.owner AND job.sweep = named.sweep
                AND job.id < %(before)s::bigint
            ORDER BY job.id DESC LIMIT (SELECT reach FROM span)
        ) AS newest
        WHERE %(scope)s::text[] IS NULL OR owner_quota.owner = ANY(%(scope)s::text[])
        UNION
        SELECT newest.id
        FROM owner_quota
        CROSS JOIN unnest(%(experiments)s::text[]) AS named (experiment)
        CROSS JOIN LATERAL (
            SELECT job.id FROM job
            WHERE %(by_experiment)s AND job.owner = owner_quota.owner
                AND job.experiment = named.experiment AND job.id < %(before)s::bigint
            ORDER BY job.id DESC LIMIT (SELECT reach FROM span)
        ) AS newest
        WHERE %(scope)s::text[] IS NULL OR owner_quota.owner = ANY(%(scope)s::text[])
        UNION
        SELECT newest.job_id
        FROM owner_quota
        CROSS JOIN unnest(%(some_tags)s::text[]) AS named (tag)
        CROSS JOIN LATERAL (
            SELECT job_tag.job_id FROM job_tag
            WHERE %(by_tag)s AND job_tag.owner = owner_quota.owner AND job_tag.tag = named.tag
                AND job_tag.job_id < %(before)s::bigint
            ORDER BY job_tag.job_id DESC LIMIT (SELECT reach FROM span)
        ) AS newest
        WHERE %(scope)s::text[] IS NULL OR owner_quota.owner = ANY(%(scope)s::text[])
        UNION
        (
            SELECT job_id FROM annotation
            WHERE %(by_archived)s AND archived AND job_id < %(before)s::bigint
            ORDER BY job_id DESC LIMIT (SELECT reach FROM span)
        )
        UNION
        (
            SELECT job_id FROM ready
            WHERE %(by_ready)s AND (SELECT few FROM sortable) AND job_id < %(before)s::bigint
                AND (
                    (SELECT lane_ids FROM fitting) IS NULL
                    OR lane_id = ANY((SELECT lane_ids FROM fitting)::integer[])
                )
            ORDER BY job_id DESC LIMIT (SELECT reach FROM span)
        )
        UNION
        (
            SELECT job_id FROM scheduled
            WHERE %(by_scheduled)s AND job_id < %(before)s::bigint
                AND (
                    (SELECT lane_ids FROM fitting) IS NULL
                    OR lane_id = ANY((SELECT lane_ids FROM fitting)::integer[])
                )
            ORDER BY job_id DESC LIMIT (SELECT reach FROM span)
        )
        UNION
        (
            SELECT job_id FROM held
            WHERE %(by_held)s AND job_id < %(before)s::bigint
                AND (
                    (SELECT lane_ids FROM fitting) IS NULL
                    OR lane_id = ANY((SELECT lane_ids FROM fitting)::integer[])
                )
            ORDER BY job_id DESC LIMIT (SELECT reach FROM span)
        )
        UNION
        (
            SELECT job_id FROM lease
            WHERE %(by_lease)s AND job_id < %(before)s::bigint
                AND (
                    (SELECT lane_ids FROM fitting) IS NULL
                    OR lane_id = ANY((SELECT lane_ids FROM fitting)::integer[])
                )
                AND (
                    (SELECT worker_ids FROM machines) IS NULL
                    OR worker_id = ANY((SELECT worker_ids FROM machines)::bigint[])
                )
            GROUP BY job_id
            ORDER BY job_id DESC LIMIT (SELECT reach FROM span)
        )
        UNION
        SELECT id FROM job
        WHERE %(by_ids)s AND id = ANY(%(ids)s::bigint[]) AND id < %(before)s::bigint
        UNION
        SELECT newest.job_id
        FROM unnest(%(by_reasons)s::reason[]) AS wanted (reason)
        CROSS JOIN LATERAL (
            SELECT outcome.job_id FROM outcome
            WHERE outcome.reason = wanted.reason AND outcome.state <> 'succeeded'
                AND outcome.job_id < %(before)s::bigint
            ORDER BY outcome.job_id DESC LIMIT (SELECT reach FROM span)
        ) AS newest
    ) AS found (job_id)
    ORDER BY job_id DESC LIMIT (SELECT reach FROM span)
),
page AS MATERIALIZED (
    SELECT job_status.*
    FROM (
        SELECT candidate.job_id
        FROM (SELECT job_id FROM candidates ORDER BY job_id DESC) AS candidate
        JOIN job ON job.id = candidate.job_id
        WHERE (%(scope)s::text[] IS NULL OR job.owner = ANY(%(scope)s::text[]))
            AND (
                (SELECT lane_ids FROM fitting) IS NULL
                OR job.lane_id = ANY((SELECT lane_ids FROM fitting)::integer[])
            )
            AND (%(words)s::text[] IS NULL OR job.name ILIKE ALL(%(words)s))
            AND (%(names)s::text[] IS NULL OR job.name ILIKE ANY(%(names)s))
            AND (%(kinds)s::job_kind[] IS NULL OR job.kind = ANY(%(kinds)s::job_kind[]))
            AND (%(in_sweeps)s::text[] IS NULL OR job.sweep LIKE ANY(%(in_sweeps)s))
            AND (
                %(in_experiments)s::text[] IS NULL OR job.experiment LIKE ANY(%(in_experiments)s)
            )
            -- Not by EXISTS, for which a plan may read all archived jobs at once.
            AND (
                %(archived)s::boolean IS NULL
                OR coalesce(
                    (SELECT kept.archived FROM annotation AS kept WHERE kept.job_id = job.id), false
                ) = %(archived)s::boolean
            )
            AND NOT EXISTS (
                SELECT FROM jsonb_array_elements(%(tags)s::jsonb) AS term (any_of)
                WHERE NOT EXISTS (
                    SELECT
                    FROM job_tag
                    JOIN jsonb_array_elements_text(term.any_of) AS wanted (pattern)
                        ON job_tag.tag LIKE wanted.pattern
                    WHERE job_tag.job_id = job.id
                )
            )
            AND (%(since)s::timestamptz IS NULL OR job.submitted_at >= %(since)s::timestamptz)
            AND NOT EXISTS (
                SELECT FROM jsonb_array_elements(%(figures)s::jsonb) AS term (any_of)
                WHERE NOT EXISTS (
                    SELECT
                    FROM jsonb_to_recordset(term.any_of)
                        AS wanted (
                            source text, name text, stem text, extreme text, sign text,
                            pattern text, number numeric
                        )
                    CROSS JOIN LATERAL (
                        SELECT job.spec -> 'parameters' -> wanted.name AS value
                        WHERE wanted.source = 'param'
                        UNION ALL
                        SELECT figure.value FROM forge_figures(
                            job.id, wanted.source, wanted.name, wanted.stem, wanted.extreme
                        ) AS figure (value)
                        WHERE wanted.source <> 'param'
                    ) AS given
                    WHERE given.value #>> '{}' LIKE wanted.pattern
                        OR CASE WHEN jsonb_typeof(given.value) = 'number' THEN
                            CASE wanted.sign
                                WHEN '=' THEN given.value::numeric = wanted.number
                                WHEN '<' THEN given.value::numeric < wanted.number
                                WHEN '<=' THEN given.value::numeric <= wanted.number
                                WHEN '>' THEN given.value::numeric > wanted.number
                                WHEN '>=' THEN given.value::numeric >= wanted.number
                            END
                        END
                )
            )
        ORDER BY candidate.job_id DESC
        OFFSET 0
    ) AS fit
    JOIN job_status ON job_status.job_id = fit.job_id
    WHERE (%(states)s::state[] IS NULL OR job_status.state = ANY(%(states)s::state[]))
        AND (%(reasons)s::reason[] IS NULL OR job_status.reason = ANY(%(reasons)s::reason[]))
        AND (%(waits)s::text[] IS NULL OR job_status.waits_for && %(waits)s::text[])
        AND (
            (SELECT worker_ids FROM machines) IS NULL
            OR EXISTS (
                SELECT FROM lease
                WHERE lease.job_id = fit.job_id
                    AND lease.worker_id = ANY((SELECT worker_ids FROM machines)::bigint[])
            )
        )
    ORDER BY fit.job_id DESC
    LIMIT %(count)s::bigint
),
seen AS MATERIALIZED (
    SELECT count(*) AS looked, min(job_id) AS lowest FROM candidates
)
SELECT
    seen.looked, span.reach, seen.lowest,
    coalesce(
        (
            SELECT job.submitted_at < %(since)s::timestamptz - interval '1 hour'
            FROM job WHERE job.id = seen.lowest
        ), false
    ) AS past,
    page.job_id, page.name, page.owner, page.queue, page.priority, page.state, page.attempt,
    page.reason, page.asked, page.exit_code, page.detail, page.phase, page.progress, page.run_at,
    page.submitted_at, page.finished_at, page.waits_for, page.approval, page.workers,
    page.tags, page.note, page.archived,
    -- A run of a range of machines may have had more than the job needs.
    greatest(page.nodes, past.members)::integer AS nodes,
    coalesce(page.worker_id, past.worker_id) AS worker_id,
    coalesce(page.worker, worker.name, former_worker.name) AS worker,
    CASE
        WHEN page.state = 'running' THEN extract(EPOCH FROM forge_now() - page.started_at)
        ELSE past.ran_s
    END::float8 AS ran_s,
    past.cost
FROM seen
CROSS JOIN span
LEFT JOIN page ON true
LEFT JOIN LATERAL (
    SELECT
        sum(attempt.cost) AS cost,
        count(*) FILTER (WHERE attempt.attempt = page.attempt) AS members,
        max(attempt.worker_id) FILTER (
            WHERE attempt.attempt = page.attempt AND attempt.rank = 0
        ) AS worker_id,
        extract(EPOCH FROM max(
            attempt.finished_at - coalesce(attempt.started_at, attempt.claimed_at)
        ) FILTER (WHERE attempt.attempt = page.attempt)) AS ran_s
    FROM attempt WHERE attempt.job_id = page.job_id
) AS past ON true
LEFT JOIN worker ON worker.id = past.worker_id
LEFT JOIN former_worker ON former_worker.id = past.worker_id
ORDER BY page.job_id DESC
