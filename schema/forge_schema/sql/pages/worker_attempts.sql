-- The attempts that ended on a worker, newest first, before a time and a job.
SELECT
    attempt.job_id, job.name, job.owner, attempt.attempt, attempt.rank, attempt.reason,
    attempt.exit_code, attempt.finished_at, attempt.cost,
    extract(EPOCH FROM attempt.finished_at - attempt.claimed_at)::float8 AS held_s
FROM (
    SELECT *
    FROM attempt
    WHERE worker_id = %(worker_id)s AND finished_at <= %(before)s
        AND (finished_at, job_id) < (%(before)s, %(before_job)s)
    ORDER BY finished_at DESC, job_id DESC
    LIMIT %(count)s
) AS attempt
JOIN job ON job.id = attempt.job_id
ORDER BY attempt.finished_at DESC, attempt.job_id DESC
