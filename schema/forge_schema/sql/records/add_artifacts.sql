-- Adds index rows of artifacts whose uploads are complete. Idempotent.
WITH held AS (
    SELECT job_id, token, attempt FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
added AS (
    INSERT INTO artifact (
        job_id, token, path, attempt, key, bytes, sha256, created_at, target, modified_at
    )
    SELECT
        held.job_id, held.token, file.path, held.attempt, file.key, file.bytes, file.sha256,
        forge_now(), file.target, file.modified_at
    FROM held, jsonb_to_recordset(%(files)s)
        AS file (
            path text, key text, bytes bigint, sha256 text, target text, modified_at timestamptz
        )
    ON CONFLICT DO NOTHING
)
SELECT job_id FROM held
