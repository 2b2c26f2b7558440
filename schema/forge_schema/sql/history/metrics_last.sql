-- The last value of each metric of a job's rank, among the last lines of one attempt, or of the
-- newest one that has any; and among its first ten lines, where addresses of trackers are. Of steps,
-- the highest: files of TensorBoard are read one after the other.
WITH newest AS MATERIALIZED (
    SELECT token FROM metric
    WHERE job_id = %(job_id)s AND rank = %(rank)s
        AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    ORDER BY token DESC
    LIMIT 1
),
line AS MATERIALIZED (
    (
        SELECT metric.number, metric.attempt, metric.at, metric.step, metric.values
        FROM metric
        WHERE metric.job_id = %(job_id)s AND metric.rank = %(rank)s
            AND metric.token = (SELECT token FROM newest)
        ORDER BY metric.number DESC
        LIMIT %(count)s
    )
    UNION ALL
    (
        SELECT metric.number, metric.attempt, metric.at, metric.step, metric.values
        FROM metric
        WHERE metric.job_id = %(job_id)s AND metric.rank = %(rank)s
            AND metric.token = (SELECT token FROM newest)
        ORDER BY metric.number
        LIMIT 10
    )
)
SELECT DISTINCT ON (pair.key) pair.key, pair.value, line.step, line.attempt, line.at
FROM line
CROSS JOIN LATERAL jsonb_each(line.values) AS pair
ORDER BY
    pair.key,
    CASE WHEN pair.key = 'step' THEN line.step END DESC NULLS LAST,
    line.number DESC
