-- The values of an attempt's resource samples, of its processes and of each GPU, in a bounded
-- number of points, as in `series_metrics`.
WITH extent AS MATERIALIZED (
    SELECT
        newest.number AS last_number,
        ceil((newest.number + 1.0) / %(lines)s)::integer AS stride,
        (
            SELECT count(*) > %(lines)s
            FROM (
                SELECT FROM sample
                WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
                    AND at BETWEEN %(since)s AND %(until)s
                LIMIT %(lines)s::bigint + 1
            ) AS counted
        ) AS many
    FROM (
        SELECT number FROM sample
        WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
            AND at BETWEEN %(since)s AND %(until)s
        ORDER BY number DESC LIMIT 1
    ) AS newest
),
found AS MATERIALIZED (
    SELECT number, at, values FROM sample
    WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
        AND at BETWEEN %(since)s AND %(until)s
        AND (SELECT NOT many FROM extent)
    UNION ALL
    SELECT DISTINCT ON (taken.number) taken.number, taken.at, taken.values
    FROM extent
    CROSS JOIN LATERAL generate_series(last_number, 0, -stride) AS place
    CROSS JOIN LATERAL (
        SELECT number, at, values FROM sample
        WHERE job_id = %(job_id)s AND token = %(token)s AND rank = %(rank)s::smallint
            AND at BETWEEN %(since)s AND %(until)s AND number >= place
        ORDER BY number LIMIT 1
    ) AS taken
    WHERE many
),
said AS (
    SELECT number, at, NULL AS gpu, values AS by_key FROM found
    UNION ALL
    SELECT number, at, gpu, by_key
    FROM found
    CROSS JOIN LATERAL jsonb_each(
        CASE jsonb_typeof(values -> 'gpus') WHEN 'object' THEN values -> 'gpus' END
    ) AS look (gpu, by_key)
),
told AS (
    SELECT
        number, at, gpu, key, value
    FROM said
    CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(by_key) WHEN 'object' THEN by_key END)
        AS entry (key, raw)
    CROSS JOIN LATERAL forge_measured(raw) AS value
    WHERE value IS NOT NULL AND (%(keys)s::text[] IS NULL OR key = ANY(%(keys)s))
        AND (%(contains)s::text IS NULL OR strpos(lower(key), lower(%(contains)s::text)) > 0)
),
cut AS MATERIALIZED (
    SELECT
        *, dense_rank() OVER (ORDER BY key, gpu) AS place,
        (row_number() OVER (PARTITION BY key, gpu ORDER BY number) - 1)
        / ceil(count(*) OVER (PARTITION BY key, gpu) / %(points)s::float8)::bigint AS run
    FROM told
),
point AS (
    SELECT
        key, gpu, run, count(*) AS counted, min(value) AS least, avg(value) AS mean,
        max(value) AS greatest, (array_agg(value ORDER BY number DESC))[1] AS last,
        (array_agg(at ORDER BY number DESC))[1] AS at
    FROM cut
    WHERE place <= %(most_keys)s
    GROUP BY key, gpu, run
)
SELECT
    key, gpu, sum(counted)::bigint AS count,
    array_agg(extract(epoch FROM at)::float8 ORDER BY run) AS t,
    '{}'::float8[] AS step,
    array_agg(least ORDER BY run) AS min, array_agg(mean ORDER BY run) AS avg,
    array_agg(greatest ORDER BY run) AS max, array_agg(last ORDER BY run) AS last,
    (SELECT greatest(max(place) - %(most_keys)s, 0) FROM cut) AS left_off
FROM point
GROUP BY key, gpu
ORDER BY key, gpu
