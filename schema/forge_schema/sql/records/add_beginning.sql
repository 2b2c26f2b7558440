-- Records the checkpoint that an attempt begins with. Idempotent; all ranks of a run begin with the
-- same.
WITH held AS (
    SELECT job_id, attempt FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
added AS (
    INSERT INTO beginning (job_id, attempt, from_attempt, from_number)
    SELECT job_id, attempt, %(from_attempt)s, %(from_number)s FROM held
    ON CONFLICT (job_id, attempt) DO UPDATE
    SET from_attempt = excluded.from_attempt, from_number = excluded.from_number
)
SELECT job_id FROM held
