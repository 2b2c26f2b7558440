-- The chunks of a job's log after a position, in reading order; optionally of one attempt or rank,
-- or stored since a time.
SELECT token, rank, number, attempt, key, start, bytes, sha256, created_at
FROM log_chunk
WHERE job_id = %(job_id)s AND (token, rank, number) > (%(token)s, %(rank)s, %(number)s)
    AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    AND (%(only_rank)s::smallint IS NULL OR rank = %(only_rank)s)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
ORDER BY token, rank, number
LIMIT %(count)s
