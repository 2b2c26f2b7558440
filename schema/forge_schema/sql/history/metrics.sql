-- The metric lines of a job's rank after a position, of one attempt or of all.
SELECT token, rank, number, attempt, at, step, values
FROM metric
WHERE job_id = %(job_id)s AND rank = %(rank)s
    AND token >= %(token)s AND (token, number) > (%(token)s, %(number)s)
    AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
ORDER BY token, number
LIMIT %(count)s
