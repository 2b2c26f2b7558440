-- Every failed attempt, once for each of its GPUs: neither succeeded nor cancelled nor given back
-- by a worker that left, nor over because of another member of its run.
CREATE VIEW failed_attempts AS
SELECT
    attempt.job_id,
    job.name,
    lane.owner,
    lane.queue,
    attempt.attempt,
    attempt.rank,
    attempt.reason,
    attempt.exit_code,
    attempt.detail,
    attempt.worker_id,
    coalesce(worker.name, former_worker.name) AS worker,
    device.gpu,
    attempt.finished_at,
    (attempt.finished_at AT TIME ZONE 'UTC')::date AS day
FROM attempt
JOIN lane ON lane.id = attempt.lane_id
JOIN job ON job.id = attempt.job_id
LEFT JOIN worker ON worker.id = attempt.worker_id
LEFT JOIN former_worker ON former_worker.id = attempt.worker_id
LEFT JOIN LATERAL unnest(attempt.devices) AS device (gpu) ON true
WHERE attempt.reason NOT IN ('succeeded', 'cancelled', 'preempted', 'drained')
    -- A new value of an enum, which an upgrade cannot use before it is committed.
    AND attempt.reason::text <> 'run_ended';
