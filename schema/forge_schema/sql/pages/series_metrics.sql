-- The values of a rank's metrics by key, over attempts, in a bounded number of points: values in the
-- order written, split into runs of equal length. Values from the step on at which a later attempt
-- began (`below`) are curves of their own, one for each attempt: they were superseded. A point
-- without a finite number is a gap; `newest` is what the job wrote last, be it no number. With
-- `since_x` and `until_x`, only the hundreds of lines between these steps or times are read. If there
-- are more lines than may be read, or they are wider than usual, the spans that sum them up are, with
-- every extreme. Where spans lack lines, evenly spaced lines are read instead, and the last of each
-- attempt.
WITH run AS MATERIALIZED (
    SELECT
        run.*, newest.bytes, newest.written = coalesce(whole.lines, 0) AS spanned,
        CASE WHEN asked.spans > 0 THEN coalesce(asked.first * 100, newest.written) ELSE 0 END
            AS first_number,
        least(asked.last * 100 + 99, newest.written - 1) AS last_number
    FROM unnest(
        %(tokens)s::bigint[], %(since)s::timestamptz[], %(until)s::timestamptz[],
        %(below)s::float8[]
    ) AS run (token, since, until, below)
    CROSS JOIN LATERAL (
        SELECT avg(length(wide.values::text)) AS bytes, max(wide.number) + 1 AS written
        FROM (
            SELECT number, values FROM metric
            WHERE job_id = %(job_id)s AND metric.token = run.token AND rank = %(rank)s::smallint
                AND at BETWEEN since AND until
            ORDER BY number DESC LIMIT 20
        ) AS wide
    ) AS newest
    LEFT JOIN metric_span AS whole
        ON whole.job_id = %(job_id)s AND whole.token = run.token AND whole.rank = %(rank)s::smallint
            AND whole.span = -1
    CROSS JOIN LATERAL (
        SELECT
            count(*) AS spans, min(span) FILTER (WHERE x >= %(since_x)s::float8) AS first,
            min(span) FILTER (WHERE x >= %(until_x)s::float8) AS last
        FROM (
            SELECT
                span, CASE WHEN %(by_step)s THEN step ELSE extract(epoch FROM at)::float8 END AS x
            FROM metric_span
            WHERE job_id = %(job_id)s AND metric_span.token = run.token
                AND rank = %(rank)s::smallint AND span >= 0
                AND %(since_x)s::float8 IS NOT NULL
        ) AS place
    ) AS asked
    WHERE newest.written IS NOT NULL
),
most AS MATERIALIZED (
    SELECT
        sum(greatest(last_number - first_number, 0) + 1.0) AS written, bool_and(spanned) AS spanned,
        greatest(least(%(lines)s::bigint, %(bytes)s::bigint / greatest(max(bytes), 1)), 1)::bigint
            AS lines
    FROM run
),
extent AS MATERIALIZED (
    SELECT
        ceil(most.written / most.lines)::integer AS stride,
        most.spanned AND most.written > most.lines AS spanned,
        NOT most.spanned AND (
            SELECT count(*) > most.lines
            FROM (
                SELECT FROM run
                CROSS JOIN LATERAL (
                    SELECT FROM metric
                    WHERE job_id = %(job_id)s AND metric.token = run.token
                        AND rank = %(rank)s::smallint AND at BETWEEN since AND until
                        AND number BETWEEN run.first_number AND run.last_number
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
            AND number BETWEEN run.first_number AND run.last_number
    ) AS line
    WHERE (SELECT NOT many AND NOT spanned FROM extent)
    UNION ALL
    SELECT DISTINCT ON (run.token, line.number)
        run.token, run.below, line.number, line.at, line.step, line.values
    FROM extent
    CROSS JOIN run
    CROSS JOIN LATERAL generate_series(last_number, first_number, -stride) AS place
    CROSS JOIN LATERAL (
        SELECT number, at, step, values FROM metric
        WHERE job_id = %(job_id)s AND metric.token = run.token AND rank = %(rank)s::smallint
            AND at BETWEEN since AND until AND number >= place
        ORDER BY number LIMIT 1
    ) AS line
    WHERE many
    UNION ALL
    SELECT run.token, run.below, metric_span.span, metric_span.at, metric_span.step, metric_span.values
    FROM run
    JOIN metric_span
        ON metric_span.job_id = %(job_id)s AND metric_span.token = run.token
            AND metric_span.rank = %(rank)s::smallint
            AND metric_span.span BETWEEN run.first_number / 100 AND run.last_number / 100
    WHERE (SELECT spanned FROM extent)
        -- So that a longer run costs no more.
        AND metric_span.span % (SELECT ceil(stride / 100.0) FROM extent)::integer = 0
    UNION ALL
    -- The summaries of a metric that ended as no finite number do not tell of it.
    SELECT
        run.token, run.below, whole.lines, whole.at, whole.step,
        (
            SELECT jsonb_object_agg(key, '[0, null, null, 0, null]'::jsonb)
            FROM jsonb_each(whole.values) AS entry (key, raw)
            WHERE jsonb_typeof(raw -> 4) = 'string'
        )
    FROM run
    JOIN metric_span AS whole
        ON whole.job_id = %(job_id)s AND whole.token = run.token
            AND whole.rank = %(rank)s::smallint AND whole.span = -1
            AND whole.lines = run.last_number + 1
    WHERE (SELECT spanned FROM extent)
),
told AS (
    SELECT
        token, number, at, step, key, CASE WHEN step >= below THEN token END AS replaced, measured.*
    FROM found
    CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(values) WHEN 'object' THEN values END)
        AS entry (key, raw)
    CROSS JOIN LATERAL (
        SELECT
            (value IS NOT NULL)::integer AS counted, value AS least, value AS greatest,
            value AS total, value AS last
        FROM forge_measured(raw) AS value
        WHERE (SELECT NOT spanned FROM extent)
            AND (value IS NOT NULL OR forge_said(raw) IS NOT NULL)
        UNION ALL
        SELECT
            (raw ->> 0)::integer, (raw ->> 1)::float8, (raw ->> 2)::float8, (raw ->> 3)::float8,
            (raw ->> 4)::float8
        WHERE (SELECT spanned FROM extent)
    ) AS measured
    WHERE key NOT IN ('step', 'total') AND (%(keys)s::text[] IS NULL OR key = ANY(%(keys)s))
        AND (%(contains)s::text IS NULL OR strpos(lower(key), lower(%(contains)s::text)) > 0)
),
cut AS MATERIALIZED (
    SELECT
        *, dense_rank() OVER (ORDER BY key) AS place,
        (row_number() OVER (PARTITION BY key, replaced IS NULL ORDER BY token, number) - 1)
        / ceil(count(*) OVER (PARTITION BY key, replaced IS NULL) / %(points)s::float8)::bigint
            AS piece
    FROM told
),
point AS (
    SELECT
        key, replaced, piece, sum(counted) AS counted, min(least) AS least,
        sum(total) / nullif(sum(counted), 0) AS mean, max(greatest) AS greatest,
        (array_agg(last ORDER BY token DESC, number DESC) FILTER (WHERE last IS NOT NULL))[1]
            AS last,
        (array_agg(at ORDER BY token DESC, number DESC))[1] AS at,
        (array_agg(step ORDER BY token DESC, number DESC))[1] AS step
    FROM cut
    WHERE place <= %(most_keys)s
    GROUP BY key, replaced, piece
)
SELECT
    key, NULL AS gpu, replaced, sum(counted)::bigint AS count,
    array_agg(extract(epoch FROM at)::float8 ORDER BY piece) AS t,
    array_agg(step ORDER BY piece) AS step,
    array_agg(least ORDER BY piece) AS min, array_agg(mean ORDER BY piece) AS avg,
    array_agg(greatest ORDER BY piece) AS max, array_agg(last ORDER BY piece) AS last,
    (
        SELECT whole.values -> point.key -> 4 FROM metric_span AS whole
        WHERE whole.job_id = %(job_id)s AND whole.token = ANY(%(tokens)s::bigint[])
            AND whole.rank = %(rank)s::smallint AND whole.span = -1 AND whole.values ? point.key
        ORDER BY whole.token DESC
        LIMIT 1
    ) AS newest,
    (SELECT greatest(max(place) - %(most_keys)s, 0) FROM cut) AS left_off
FROM point
GROUP BY key, replaced
ORDER BY key, replaced
