-- The last numbers that a job's rank 0 wrote to its metrics file, by name, in its last three lines;
-- NaN and infinities are text. All lines are younger than `since`, so older months are left alone.
CREATE OR REPLACE FUNCTION forge_last_metrics(of_job bigint, since timestamptz)
RETURNS TABLE (key text, value jsonb)
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT DISTINCT ON (pair.key) pair.key, pair.value
    FROM (
        SELECT metric.token, metric.number, metric.values
        FROM metric
        WHERE metric.job_id = of_job AND metric.rank = 0 AND metric.at >= since
        ORDER BY metric.token DESC, metric.number DESC
        LIMIT 3
    ) AS line
    CROSS JOIN LATERAL jsonb_each(line.values) AS pair
    WHERE jsonb_typeof(pair.value) = 'number'
        OR pair.value IN ('"NaN"', '"Infinity"', '"-Infinity"')
    ORDER BY pair.key, line.token DESC, line.number DESC
$$;
