-- Every ended job of a sweep: its parameters, its result, and what it took.
CREATE VIEW benchmark_results AS
SELECT
    job.sweep,
    job.owner,
    job.id AS job_id,
    job.name,
    outcome.state,
    outcome.reason,
    coalesce(job.spec -> 'parameters', '{}') AS parameters,
    result.values AS result,
    coalesce(worker.name, former_worker.name) AS worker,
    attempt.devices,
    extract(EPOCH FROM attempt.finished_at - attempt.started_at)::double precision AS seconds,
    attempt.gpu_seconds,
    attempt.energy_j,
    attempt.cost,
    job.submitted_at,
    outcome.finished_at
FROM job
JOIN outcome ON outcome.job_id = job.id
LEFT JOIN result ON result.job_id = job.id AND result.token = outcome.token
-- An outcome is written with its attempt, so earlier months can be skipped.
LEFT JOIN LATERAL (
    SELECT * FROM attempt AS last
    WHERE last.job_id = job.id AND last.attempt = outcome.attempt AND last.rank = 0
        AND last.token = outcome.token AND last.finished_at >= outcome.finished_at
    LIMIT 1
) AS attempt ON true
LEFT JOIN worker ON worker.id = attempt.worker_id
LEFT JOIN former_worker ON former_worker.id = attempt.worker_id
WHERE job.sweep IS NOT NULL;
