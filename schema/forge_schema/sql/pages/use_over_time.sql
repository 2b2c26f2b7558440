-- How many jobs waited and ran on average, and how many GPUs they held, in each of `count` steps of
-- time: of some owners or of all, of a queue or of all, on a worker or on all. How long the jobs that
-- began in a step had waited; and the workers and GPUs that were there, from each one's first
-- connection until it was last heard.
-- A stretch of time is two points: what it adds at its beginning, it takes away at its end. The
-- points of a step are summed, and a step goes on with what the ones before it left. So the work is
-- that of reading each attempt once, however many steps it lasted.
WITH span AS MATERIALIZED (
    SELECT
        %(until)s::timestamptz - %(count)s::integer * %(step)s::interval AS since,
        %(now)s::timestamptz AS now,
        extract(EPOCH FROM %(step)s::interval)::float8 AS step_s
),
mine AS MATERIALIZED (
    SELECT lane.id, shape.gpus
    FROM lane
    JOIN shape ON shape.id = lane.shape_id
    WHERE (%(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[]))
        AND (%(queue)s::text IS NULL OR lane.queue = %(queue)s)
),
stretch AS MATERIALIZED (
    SELECT ready_at, claimed_at, finished_at, rank, mine.gpus
    FROM attempt
    JOIN mine ON mine.id = attempt.lane_id
    WHERE finished_at >= %(until)s::timestamptz - %(count)s::integer * %(step)s::interval
        AND (%(worker_id)s::bigint IS NULL OR worker_id = %(worker_id)s)
    UNION ALL
    SELECT ready_at, claimed_at, NULL, rank, mine.gpus
    FROM lease
    JOIN mine ON mine.id = lease.lane_id
    WHERE over IS NULL
        AND (%(worker_id)s::bigint IS NULL OR worker_id = %(worker_id)s)
    UNION ALL
    SELECT ready_at, NULL, NULL, 0, 0
    FROM ready
    JOIN mine ON mine.id = ready.lane_id
    WHERE %(worker_id)s::bigint IS NULL
),
there AS MATERIALIZED (
    SELECT
        connected_at AS began, jsonb_array_length(gpus) AS gpus,
        CASE WHEN status = 'offline' THEN last_seen_at END AS ended
    FROM worker
    WHERE connected_at IS NOT NULL AND (%(worker_id)s::bigint IS NULL OR id = %(worker_id)s)
),
-- A gang waits as one job, and holds GPUs on each of its machines.
point AS (
    SELECT
        ready_at AS at, (rank = 0)::integer AS waiting, 0 AS running, 0 AS held, 0 AS workers,
        0 AS gpus
    FROM stretch
    UNION ALL
    SELECT
        claimed_at, -(rank = 0)::integer,
        (rank = 0 OR %(worker_id)s::bigint IS NOT NULL)::integer, gpus, 0, 0
    FROM stretch
    WHERE claimed_at IS NOT NULL
    UNION ALL
    SELECT
        finished_at, 0, -(rank = 0 OR %(worker_id)s::bigint IS NOT NULL)::integer, -gpus, 0, 0
    FROM stretch
    WHERE finished_at IS NOT NULL
    UNION ALL
    SELECT began, 0, 0, 0, 1, gpus FROM there
    UNION ALL
    SELECT ended, 0, 0, 0, -1, -gpus FROM there WHERE ended IS NOT NULL
),
placed AS (
    SELECT
        point.*,
        greatest(extract(EPOCH FROM point.at - span.since)::float8 / span.step_s, 0) AS place
    FROM point
    CROSS JOIN span
    WHERE point.at < span.now
),
-- Time before there was anything counts for nothing, and so does what is yet to come.
bounds AS MATERIALIZED (
    SELECT
        (SELECT min(place) FROM placed) AS first,
        extract(EPOCH FROM span.now - span.since)::float8 / span.step_s AS last
    FROM span
),
-- `part` is what is left of its own step.
summed AS (
    SELECT
        floor(placed.place)::integer AS step,
        sum(waiting) AS waiting, sum(waiting * part) AS waited,
        sum(running) AS running, sum(running * part) AS ran,
        sum(held) AS held, sum(held * part) AS holding,
        sum(workers) AS workers, sum(workers * part) AS present,
        sum(gpus) AS gpus, sum(gpus * part) AS owned
    FROM placed
    CROSS JOIN bounds
    CROSS JOIN LATERAL (
        SELECT
            floor(placed.place) AS since,
            least(floor(placed.place) + 1, bounds.last) AS until
    ) AS its
    CROSS JOIN LATERAL (
        SELECT
            (its.until - placed.place) / (its.until - greatest(its.since, bounds.first)) AS part
    ) AS rest
    GROUP BY 1
),
begun AS (
    SELECT
        floor(extract(EPOCH FROM claimed_at - span.since)::float8 / span.step_s)::integer AS step,
        count(*)::integer AS jobs,
        avg(extract(EPOCH FROM claimed_at - ready_at))::float8 AS mean_s,
        extract(EPOCH FROM max(claimed_at - ready_at))::float8 AS longest_s
    FROM stretch
    CROSS JOIN span
    WHERE rank = 0 AND claimed_at >= span.since AND claimed_at < span.now
    GROUP BY 1
)
SELECT
    span.since + %(step)s::interval * CASE
        WHEN floor(bounds.first) = step.number THEN bounds.first ELSE step.number
    END AS at,
    least(span.since + (step.number + 1) * %(step)s::interval, span.now) AS until,
    greatest(coalesce(sum(summed.waiting) OVER earlier, 0) + coalesce(summed.waited, 0), 0)::float8
        AS waiting,
    greatest(coalesce(sum(summed.running) OVER earlier, 0) + coalesce(summed.ran, 0), 0)::float8
        AS running,
    greatest(coalesce(sum(summed.held) OVER earlier, 0) + coalesce(summed.holding, 0), 0)::float8
        AS gpus_held,
    greatest(coalesce(sum(summed.workers) OVER earlier, 0) + coalesce(summed.present, 0), 0)::float8
        AS workers,
    greatest(coalesce(sum(summed.gpus) OVER earlier, 0) + coalesce(summed.owned, 0), 0)::float8
        AS gpus,
    coalesce(begun.jobs, 0) AS begun, begun.mean_s, begun.longest_s
FROM span
CROSS JOIN bounds
CROSS JOIN generate_series(0, %(count)s::integer - 1) AS step (number)
LEFT JOIN summed ON summed.step = step.number
LEFT JOIN begun ON begun.step = step.number
WINDOW earlier AS (ORDER BY step.number ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
ORDER BY step.number
