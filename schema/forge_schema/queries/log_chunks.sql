-- The chunks of a job's log after a place, in reading order.
SELECT token, rank, number, attempt, key, start, bytes, sha256
FROM log_chunk
WHERE job_id = %(job_id)s AND (token, rank, number) > (%(token)s, %(rank)s, %(number)s)
    AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
ORDER BY token, rank, number
LIMIT %(count)s
