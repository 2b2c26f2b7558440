-- The test results of a job after a number, in the order of the report: of one attempt, or of the
-- newest one that has any.
WITH chosen AS MATERIALIZED (
    SELECT token FROM test_result
    WHERE job_id = %(job_id)s
        AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    ORDER BY token DESC
    LIMIT 1
)
SELECT number, attempt, suite, name, verdict, seconds, message
FROM test_result, chosen
WHERE test_result.job_id = %(job_id)s AND test_result.token = chosen.token
    AND number > %(after)s
    AND (%(verdicts)s::verdict[] IS NULL OR verdict = ANY(%(verdicts)s::verdict[]))
ORDER BY number
LIMIT %(count)s
