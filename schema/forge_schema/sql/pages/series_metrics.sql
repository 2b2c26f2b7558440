-- The values of a rank's metrics by key, over attempts, in a bounded number of points: values in the
-- order written, split into runs of equal length. Values from the step on at which a later attempt
-- began (`below`) are points of their own: they were superseded. If there are more lines than may be
-- read, or they are wider than usual, evenly spaced ones and the last of each attempt are read.
WITH run AS MATERIALIZED (
    SELECT run.*, newest.bytes, newest.last_number
    FROM unnest(
        %(tokens)s::bigint[], %(since)s::timestamptz[], %(until)s::timestamptz[],
        %(below)s::float8[]
    ) AS run (token, since, until, below)
    CROSS JOIN LATERAL (
        SELECT avg(length(wide.values::text)) AS bytes, max(wide.number) AS last_number
        FROM (
            SELECT number, values FROM metric
            WHERE job_id = %(job_id)s AND metric.token = run.token AND rank = %(rank)s::smallint
                AND at BETWEEN since AND until
            ORDER BY number DESC LIMIT 20
        ) AS wide
    ) AS newest
    WHERE newest.last_number IS NOT NULL
),
most AS MATERIALIZED (
    SELECT
        sum(last_number + 1.0) AS written,
        greatest(least(%(lines)s::bigint, %(bytes)s::bigint / greatest(max(bytes), 1)), 1)::bigint
            AS lines
    FROM run
),
extent AS MATERIALIZED (
    SELECT
        ceil(most.written / most.lines)::integer AS stride,
        (
            SELECT count(*) > most.lines
            FROM (
                SELECT FROM run
                CROSS JOIN LATERAL (
                    SELECT FROM metric
                    WHERE job_id = %(job_id)s AND metric.token = run.token
                        AND rank = %(rank)s::smallint AND at BETWEEN since AND until
                    LIMIT %(lines)s::bigint + 1
                ) AS line
                LIMIT %(lines)s::bigint + 1
            ) AS counted
        ) AS many
    FROM most
),
found AS (
    SELECT run.token, run.below, line.number, line.at, line.step, line.values
    FROM run
    CROSS JOIN LATERAL (
        SELECT number, at, step, values FROM metric
        WHERE job_id = %(job_id)s AND metric.token = run.token AND rank = %(rank)s::smallint
            AND at BETWEEN since AND until
    ) AS line
    WHERE (SELECT NOT many FROM extent)
    UNION ALL
    SELECT DISTINCT ON (run.token, line.number)
        run.token, run.below, line.number, line.at, line.step, line.values
    FROM extent
    CROSS JOIN run
    CROSS JOIN LATERAL generate_series(last_number, 0, -stride) AS place
    CROSS JOIN LATERAL (
        SELECT number, at, step, values FROM metric
        WHERE job_id = %(job_id)s AND metric.token = run.token AND rank = %(rank)s::smallint
            AND at BETWEEN since AND until AND number >= place
        ORDER BY number LIMIT 1
    ) AS line
    WHERE many
),
told AS (
    SELECT
        token, number, at, step, key, coalesce(step >= below, false) AS superseded,
        -- Postgres refuses to make such a number a float8.
        CASE WHEN abs(said) < 1e-300 THEN 0 ELSE said::float8 END AS value
    FROM found
    CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(values) WHEN 'object' THEN values END)
        AS entry (key, raw)
    CROSS JOIN LATERAL (
        SELECT CASE jsonb_typeof(raw) WHEN 'number' THEN raw::numeric END AS said
    ) AS number_in_it
    WHERE abs(said) < 1e300 AND key NOT IN ('step', 'total')
        AND (%(keys)s::text[] IS NULL OR key = ANY(%(keys)s))
),
cut AS MATERIALIZED (
    SELECT
        *, dense_rank() OVER (ORDER BY key) AS place,
        (row_number() OVER (PARTITION BY key, superseded ORDER BY token, number) - 1)
        / ceil(count(*) OVER (PARTITION BY key, superseded) / %(points)s::float8)::bigint AS piece
    FROM told
),
point AS (
    SELECT
        key, superseded, piece, count(*) AS counted, min(value) AS least, avg(value) AS mean,
        max(value) AS greatest, (array_agg(value ORDER BY token DESC, number DESC))[1] AS last,
        (array_agg(at ORDER BY token DESC, number DESC))[1] AS at,
        (array_agg(step ORDER BY token DESC, number DESC))[1] AS step
    FROM cut
    WHERE place <= %(most_keys)s
    GROUP BY key, superseded, piece
)
SELECT
    key, NULL AS gpu, superseded, sum(counted)::bigint AS count,
    array_agg(extract(epoch FROM at)::float8 ORDER BY piece) AS t,
    array_agg(step ORDER BY piece) AS step,
    array_agg(least ORDER BY piece) AS min, array_agg(mean ORDER BY piece) AS avg,
    array_agg(greatest ORDER BY piece) AS max, array_agg(last ORDER BY piece) AS last,
    (SELECT greatest(max(place) - %(most_keys)s, 0) FROM cut) AS left_off
FROM point
GROUP BY key, superseded
ORDER BY key, superseded
