-- The outline of a metric of rank 0 for jobs by id: values at evenly spaced lines of each attempt,
-- in the order of their steps, in which a later attempt replaces an earlier one.
WITH attempt_span AS (
    SELECT job_id, token, lines FROM metric_span
    WHERE job_id = ANY(%(job_ids)s::bigint[]) AND rank = 0 AND span = -1 AND values ? %(key)s
)
SELECT attempt_span.job_id, array_agg(line.value ORDER BY attempt_span.token, line.number) AS values,
    array_agg(line.step ORDER BY attempt_span.token, line.number) AS steps
FROM attempt_span
CROSS JOIN LATERAL generate_series(0, %(points)s - 1) AS place
CROSS JOIN LATERAL (
    SELECT metric.number, metric.step, forge_measured(metric.values -> %(key)s) AS value
    FROM metric
    WHERE metric.job_id = attempt_span.job_id AND metric.token = attempt_span.token
        AND metric.rank = 0
        AND metric.number >= (attempt_span.lines - 1)::bigint * place / greatest(%(points)s - 1, 1)
        AND metric.values ? %(key)s
    ORDER BY metric.number
    LIMIT 1
) AS line
GROUP BY attempt_span.job_id
