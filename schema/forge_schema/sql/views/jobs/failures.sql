-- The number of failed attempts by reason, worker, GPU and day. An attempt with several GPUs
-- appears at each of them; it is one failure where GPUs are not distinguished.
CREATE VIEW failures AS
SELECT
    reason,
    worker_id,
    worker,
    gpu,
    day,
    count(DISTINCT (job_id, attempt)) AS failures,
    count(DISTINCT job_id) AS jobs,
    max(finished_at) AS last_at
FROM failed_attempts
GROUP BY reason, worker_id, worker, gpu, day;
