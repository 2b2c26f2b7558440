-- Stores the test results of an attempt. Idempotent.
WITH held AS (
    SELECT job_id, token, attempt FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
added AS (
    INSERT INTO test_result (
        job_id, token, number, attempt, suite, name, verdict, seconds, message, created_at
    )
    SELECT
        held.job_id, held.token, one.number, held.attempt, one.suite, one.name, one.verdict,
        one.seconds, one.message, forge_now()
    FROM held, jsonb_to_recordset(%(tests)s) AS one (
        number integer, suite text, name text, verdict verdict, seconds float8, message text
    )
    ON CONFLICT DO NOTHING
)
SELECT job_id FROM held
