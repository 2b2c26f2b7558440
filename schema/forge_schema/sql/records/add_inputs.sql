-- Records the inputs that an attempt begins with, in the audit trail. Idempotent. Compares times as
-- rows, as whatever locks: see `thin`.
WITH held AS (
    SELECT job_id, token, attempt, rank, worker_id AS id, claimed_at FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
told AS (
    INSERT INTO event (at, actor, action, job_id, worker_id, token, detail)
    SELECT
        forge_now(), 'worker:' || id, 'inputs given', job_id, id, token,
        jsonb_build_object('attempt', attempt, 'rank', rank, 'inputs', %(inputs)s::jsonb)
    FROM held
    WHERE NOT EXISTS (
        SELECT FROM event AS told
        WHERE told.job_id = held.job_id AND (told.at, 0) >= (held.claimed_at, 0)
            AND told.action = 'inputs given' AND told.token = held.token
    )
)
SELECT job_id FROM held
