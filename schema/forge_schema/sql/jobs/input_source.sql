-- Whether another job has the files that are to be a job's input: a checkpoint, or an artifact that
-- is or lies below `path`. Another owner's job is not visible, whoever asks.
SELECT
    EXISTS (
        SELECT FROM job
        WHERE owner = %(owner)s AND idempotency_key = %(key)s::text
    ) AS submitted,
    EXISTS (SELECT FROM job WHERE id = %(source_id)s AND owner = %(owner)s) AS visible,
    EXISTS (SELECT FROM outcome WHERE job_id = %(source_id)s) AS over,
    EXISTS (
        SELECT FROM forge_complete_checkpoints(%(source_id)s)
        WHERE (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s::smallint)
            AND (%(number)s::integer IS NULL OR number = %(number)s::integer)
    ) AS checkpoint,
    EXISTS (
        SELECT FROM unnest(forge_tokens_shown(%(source_id)s)) AS shown (token)
        JOIN artifact ON artifact.job_id = %(source_id)s AND artifact.token = shown.token
        WHERE %(path)s = '' OR artifact.path = %(path)s
            OR starts_with(artifact.path, %(path)s || '/')
    ) AS artifact
