-- Adds the index row of a log chunk whose upload is complete. Idempotent.
WITH held AS (
    SELECT job_id, token, rank, attempt FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
added AS (
    INSERT INTO log_chunk (
        job_id, token, rank, number, attempt, key, start, bytes, sha256, created_at
    )
    SELECT
        job_id, token, rank, %(number)s, attempt, %(key)s, %(start)s, %(bytes)s, %(sha256)s,
        forge_now()
    FROM held
    ON CONFLICT DO NOTHING
)
SELECT job_id FROM held
