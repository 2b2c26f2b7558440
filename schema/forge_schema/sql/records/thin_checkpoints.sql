-- Deletes surplus checkpoints of a job, on behalf of its lease's holder.
-- The newest stay; of the others, the oldest one of each fourfold age, and those that other jobs
-- start from. Returns all of them, each with whether it is gone; nothing if the lease is lost.
WITH held AS MATERIALIZED (
    SELECT job_id FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
aged AS (
    SELECT
        job_id, token, number,
        row_number() OVER (ORDER BY token DESC, number DESC) AS place,
        floor(log(4, greatest(extract(epoch FROM forge_now() - created_at), 1))) AS age
    FROM checkpoint JOIN held USING (job_id)
),
spare AS (
    SELECT job_id, token, number
    FROM (
        SELECT *, row_number() OVER (PARTITION BY age ORDER BY token, number) AS elder
        FROM aged WHERE place > %(keep)s
    ) AS older
    WHERE elder > 1
),
-- A submit that names a checkpoint locks it, and this statement waits for that.
locked AS MATERIALIZED (
    SELECT checkpoint.job_id, checkpoint.token, checkpoint.number
    FROM spare JOIN checkpoint USING (job_id, token, number)
    ORDER BY checkpoint.token, checkpoint.number
    FOR UPDATE OF checkpoint
),
gone AS (
    DELETE FROM checkpoint USING locked
    WHERE checkpoint.job_id = locked.job_id AND checkpoint.token = locked.token
        AND checkpoint.number = locked.number
        AND NOT forge_is_source(locked.job_id, locked.token, locked.number)
    RETURNING checkpoint.token, checkpoint.number
)
SELECT checkpoint.token, checkpoint.number, checkpoint.key, gone.token IS NOT NULL AS gone
FROM held
JOIN checkpoint USING (job_id)
LEFT JOIN gone ON gone.token = checkpoint.token AND gone.number = checkpoint.number
ORDER BY checkpoint.token DESC, checkpoint.number DESC
