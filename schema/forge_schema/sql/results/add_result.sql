-- Stores the result of an attempt, one JSON object. Idempotent.
WITH held AS (
    SELECT job_id, token, attempt FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
added AS (
    INSERT INTO result (job_id, token, attempt, values, created_at)
    SELECT job_id, token, attempt, %(values)s, forge_now() FROM held
    ON CONFLICT DO NOTHING
)
SELECT job_id FROM held
