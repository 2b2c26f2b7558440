-- The values of an attempt's metrics by key, in a bounded number of points: values in the order
-- written, split into runs of equal length. If there are more lines than may be read, or they are
-- wider than usual, evenly spaced ones and the last one are read.
WITH width AS MATERIALIZED (
    SELECT greatest(avg(length(wide.values::text)), 1) AS bytes, max(wide.number) AS last_number
    FROM (
        SELECT number, values FROM metric
        WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
            AND at BETWEEN %(since)s AND %(until)s
        ORDER BY number DESC LIMIT 20
    ) AS wide
),
most AS MATERIALIZED (
    SELECT last_number, greatest(least(%(lines)s::bigint, %(bytes)s::bigint / bytes), 1)::bigint AS lines
    FROM width
),
extent AS MATERIALIZED (
    SELECT
        most.last_number, ceil((most.last_number + 1.0) / most.lines)::integer AS stride,
        (
            SELECT count(*) > most.lines
            FROM (
                SELECT FROM metric
                WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
                    AND at BETWEEN %(since)s AND %(until)s
                LIMIT %(lines)s::bigint + 1
            ) AS counted
        ) AS many
    FROM most
),
found AS (
    SELECT number, at, step, values FROM metric
    WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
        AND at BETWEEN %(since)s AND %(until)s
        AND (SELECT NOT many FROM extent)
    UNION ALL
    SELECT DISTINCT ON (line.number) line.number, line.at, line.step, line.values
    FROM extent
    CROSS JOIN LATERAL generate_series(last_number, 0, -stride) AS place
    CROSS JOIN LATERAL (
        SELECT number, at, step, values FROM metric
        WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
            AND at BETWEEN %(since)s AND %(until)s AND number >= place
        ORDER BY number LIMIT 1
    ) AS line
    WHERE many
),
told AS (
    SELECT
        number, at, step, key,
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
        (row_number() OVER (PARTITION BY key ORDER BY number) - 1)
        / ceil(count(*) OVER (PARTITION BY key) / %(points)s::float8)::bigint AS run
    FROM told
),
point AS (
    SELECT
        key, run, count(*) AS counted, min(value) AS least, avg(value) AS mean,
        max(value) AS greatest, (array_agg(value ORDER BY number DESC))[1] AS last,
        (array_agg(at ORDER BY number DESC))[1] AS at,
        (array_agg(step ORDER BY number DESC))[1] AS step
    FROM cut
    WHERE place <= %(most_keys)s
    GROUP BY key, run
)
SELECT
    key, NULL AS gpu, sum(counted)::bigint AS count,
    array_agg(extract(epoch FROM at)::float8 ORDER BY run) AS t,
    array_agg(step ORDER BY run) AS step,
    array_agg(least ORDER BY run) AS min, array_agg(mean ORDER BY run) AS avg,
    array_agg(greatest ORDER BY run) AS max, array_agg(last ORDER BY run) AS last,
    (SELECT greatest(max(place) - %(most_keys)s, 0) FROM cut) AS left_off
FROM point
GROUP BY key
ORDER BY key
