-- Locks a run by the lease of its first rank, for the statements that follow in the transaction: each
-- of them then sees what the one before it did.
-- Locks: lease.
SELECT rank FROM lease
WHERE job_id = %(job_id)s AND nodes > 1
ORDER BY rank
LIMIT 1
FOR NO KEY UPDATE
