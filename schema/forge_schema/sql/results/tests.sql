-- The test results of a job after a number, in the order of the report: of one attempt, or of the
-- newest one that has any. Up to a number of results and of bytes, and at least one.
WITH chosen AS MATERIALIZED (
    SELECT token FROM test_result
    WHERE job_id = %(job_id)s
        AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    ORDER BY token DESC
    LIMIT 1
),
page AS (
    SELECT
        number, attempt, suite, name, verdict, seconds, message,
        octet_length(suite) + octet_length(name) + coalesce(octet_length(message), 0) AS size
    FROM test_result, chosen
    WHERE test_result.job_id = %(job_id)s AND test_result.token = chosen.token
        AND number > %(after)s
        AND (%(verdicts)s::verdict[] IS NULL OR verdict = ANY(%(verdicts)s::verdict[]))
    ORDER BY number
    LIMIT %(count)s
),
sized AS (
    SELECT *, sum(size) OVER (ORDER BY number) - size AS before FROM page
)
SELECT number, attempt, suite, name, verdict, seconds, message
FROM sized
WHERE before < %(bytes)s
ORDER BY number
