-- The chunks of a job's log before a position, last one first; optionally of one attempt or rank,
-- or stored since a time.
SELECT token, rank, number, attempt, key, start, bytes, sha256, created_at
FROM log_chunk
WHERE job_id = %(job_id)s AND (token, rank, number) < (%(token)s, %(rank)s, %(number)s)
    AND (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
    AND (%(only_rank)s::smallint IS NULL OR rank = %(only_rank)s)
    AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
ORDER BY token DESC, rank DESC, number DESC
LIMIT %(count)s
