-- Stores an attempt's resource samples, numbered by the worker from 0 without gaps.
-- The lease counts the stored rows, so a repeat adds nothing, even concurrently with the first try.
WITH held AS MATERIALIZED (
    SELECT job_id, token, rank, attempt, samples FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR UPDATE
),
counted AS (
    UPDATE lease
    SET samples = greatest(lease.samples, %(kept)s)
    FROM held
    WHERE lease.job_id = held.job_id AND lease.rank = held.rank
),
added AS (
    INSERT INTO sample (job_id, token, rank, number, at, attempt, values)
    SELECT
        held.job_id, held.token, held.rank, taken.number, forge_now(), held.attempt, taken.values
    FROM held, jsonb_to_recordset(%(lines)s) AS taken (number integer, values jsonb)
    WHERE taken.number >= held.samples
)
SELECT job_id FROM held
