-- The job that an owner submitted under an idempotency key.
SELECT id, content_digest
FROM job
WHERE owner = %(owner)s AND idempotency_key = %(key)s
