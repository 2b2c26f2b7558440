-- Stores metric lines, numbered by the worker from 0 without gaps, and the progress they report.
-- The lease counts the stored lines, so a repeat adds nothing, even concurrently with the first
-- try.
WITH held AS MATERIALIZED (
    SELECT job_id, token, rank, attempt, metrics FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR UPDATE
),
counted AS (
    UPDATE lease
    SET progress = coalesce(%(progress)s::float8, lease.progress),
        metrics = greatest(lease.metrics, %(kept)s)
    FROM held
    WHERE lease.job_id = held.job_id AND lease.rank = held.rank
),
added AS (
    INSERT INTO metric (job_id, token, rank, number, at, attempt, step, values)
    SELECT
        held.job_id, held.token, held.rank, line.number, forge_now(), held.attempt, line.step,
        line.values
    FROM held, jsonb_to_recordset(%(lines)s) AS line (number integer, step float8, values jsonb)
    WHERE line.number >= held.metrics
)
SELECT job_id FROM held
