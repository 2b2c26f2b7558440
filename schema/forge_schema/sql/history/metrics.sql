-- The metric lines of a job's rank after a position, of one attempt or of all: up to a number of
-- lines and of bytes, and at least one.
WITH page AS (
    SELECT token, rank, number, attempt, at, step, values, octet_length(values::text) AS size
    FROM metric
    WHERE job_id = %(job_id)s AND rank = %(rank)s
        AND token >= %(token)s AND (token, number) > (%(token)s, %(number)s)
        AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    ORDER BY token, number
    LIMIT %(count)s
),
sized AS (
    SELECT *, sum(size) OVER (ORDER BY token, number) - size AS before FROM page
)
SELECT token, rank, number, attempt, at, step, values
FROM sized
WHERE before < %(bytes)s
ORDER BY token, number
