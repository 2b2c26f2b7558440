-- Adds the index row of a checkpoint whose upload is complete, of one rank. Idempotent.
WITH held AS (
    SELECT job_id, token, rank, attempt, nodes FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
added AS (
    INSERT INTO checkpoint (
        job_id, token, number, attempt, key, files, bytes, created_at, rank, nodes, follows, step,
        killed
    )
    SELECT
        job_id, token, %(number)s, attempt, %(key)s, %(files)s, %(bytes)s, forge_now(), rank,
        nodes, CASE WHEN rank > 0 THEN coalesce(%(follows)s::integer, -1) END, %(step)s::bigint,
        %(killed)s
    FROM held
    ON CONFLICT DO NOTHING
)
SELECT job_id FROM held
