-- The ends of a job's last attempts, newest first.
SELECT
    attempt.attempt, attempt.rank, coalesce(worker.name, former_worker.name) AS worker,
    attempt.reason, attempt.exit_code, attempt.detail, attempt.finished_at,
    extract(EPOCH FROM attempt.finished_at - attempt.claimed_at)::float8 AS held_s
FROM attempt
LEFT JOIN worker ON worker.id = attempt.worker_id
LEFT JOIN former_worker ON former_worker.id = attempt.worker_id
WHERE attempt.job_id = %(job_id)s
ORDER BY attempt.attempt DESC, attempt.rank
LIMIT %(count)s
