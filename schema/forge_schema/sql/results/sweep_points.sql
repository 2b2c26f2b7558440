-- The jobs of an owner's sweep after an id, each with its parameters and its result.
SELECT
    job.id AS job_id,
    job.name,
    job_status.state,
    job_status.reason,
    coalesce(job.spec -> 'parameters', '{}') AS parameters,
    result.values AS result,
    extract(EPOCH FROM attempt.finished_at - attempt.started_at)::double precision AS seconds,
    attempt.gpu_seconds,
    attempt.energy_j
FROM job
JOIN job_status ON job_status.job_id = job.id
LEFT JOIN result ON result.job_id = job.id AND result.token = job_status.token
LEFT JOIN attempt
    ON attempt.job_id = job.id AND attempt.token = job_status.token AND attempt.rank = 0
WHERE job.owner = %(owner)s AND job.sweep = %(sweep)s AND job.id > %(after)s
ORDER BY job.id
LIMIT %(count)s
