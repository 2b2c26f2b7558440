-- Every test of every attempt: its result, duration and message.
CREATE VIEW test_results AS
SELECT
    test_result.job_id,
    job.name AS job,
    job.owner,
    test_result.attempt,
    test_result.token,
    outcome.job_id IS NOT NULL AND outcome.token IS NOT DISTINCT FROM test_result.token AS accepted,
    test_result.number,
    test_result.suite,
    test_result.name,
    test_result.verdict,
    test_result.seconds,
    test_result.message,
    test_result.created_at
FROM test_result
JOIN job ON job.id = test_result.job_id
LEFT JOIN outcome ON outcome.job_id = test_result.job_id;
