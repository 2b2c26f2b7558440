-- Stores metric lines, numbered by the worker from 0 without gaps, and the progress they report.
-- The lease counts the stored lines, so a repeat adds nothing, even concurrently with the first
-- try. Each hundred lines of a rank, and all of them as span -1, are summed up in a row. The last
-- value of all may be no finite number; those of a hundred are for charts, which have a gap there.
-- Locks: lease, then metric_span.
WITH held AS MATERIALIZED (
    SELECT job_id, token, rank, attempt, metrics FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR UPDATE
),
counted AS (
    UPDATE lease
    SET progress = coalesce(%(progress)s::float8, lease.progress),
        metrics = greatest(lease.metrics, %(kept)s)
    FROM held
    WHERE lease.job_id = held.job_id AND lease.rank = held.rank
),
line AS MATERIALIZED (
    SELECT line.number, line.step, line.values
    FROM held, jsonb_to_recordset(%(lines)s) AS line (number integer, step float8, values jsonb)
    WHERE line.number >= held.metrics
),
added AS (
    INSERT INTO metric (job_id, token, rank, number, at, attempt, step, values)
    SELECT
        held.job_id, held.token, held.rank, line.number, forge_now(), held.attempt, line.step,
        line.values
    FROM held, line
),
told AS MATERIALIZED (
    SELECT
        line.number, entry.key, forge_measured(entry.value) AS value,
        forge_said(entry.value) AS said
    FROM line
    CROSS JOIN LATERAL jsonb_each(CASE jsonb_typeof(line.values) WHEN 'object' THEN line.values END)
        AS entry (key, value)
    WHERE entry.key NOT IN ('step', 'total')
),
-- A row for each span, and one for each metric of a span, so that one aggregation brings together
-- what belongs to it: to look each span's metrics up costs as much as lines times spans.
part AS (
    SELECT
        its.span, NULL AS key, NULL::jsonb AS summary, count(*) AS lines,
        (array_agg(line.step ORDER BY line.number DESC) FILTER (WHERE line.step IS NOT NULL))[1]
            AS step
    FROM line CROSS JOIN LATERAL (VALUES (-1), (line.number / 100)) AS its (span)
    GROUP BY its.span
    UNION ALL
    SELECT
        its.span, told.key,
        jsonb_build_array(
            count(told.value), min(told.value), max(told.value), coalesce(sum(told.value), 0),
            (array_agg(its.last ORDER BY told.number DESC))[1], min(told.number)
        ),
        NULL, NULL
    FROM told
    CROSS JOIN LATERAL (
        VALUES (-1, told.said), (told.number / 100, to_jsonb(told.value))
    ) AS its (span, last)
    WHERE its.last IS NOT NULL
    GROUP BY its.span, told.key
),
batch AS MATERIALIZED (
    SELECT
        part.span, max(part.lines) AS lines, max(part.step) AS step,
        coalesce(
            jsonb_object_agg(part.key, part.summary) FILTER (WHERE part.key IS NOT NULL), '{}'
        ) AS values
    FROM part
    GROUP BY part.span
),
kept AS (
    INSERT INTO metric_span (job_id, token, rank, span, lines, at, step, values)
    SELECT
        held.job_id, held.token, held.rank, batch.span, batch.lines, forge_now(), batch.step,
        forge_merge_spans('{}', batch.values)
    FROM held, batch
    ORDER BY batch.span
    ON CONFLICT (job_id, token, rank, span) DO UPDATE
    SET lines = metric_span.lines + excluded.lines,
        at = excluded.at,
        step = coalesce(excluded.step, metric_span.step),
        -- Those of `excluded` no longer tell which came first.
        values = forge_merge_spans(
            metric_span.values, (SELECT batch.values FROM batch WHERE batch.span = excluded.span)
        )
)
SELECT job_id FROM held
