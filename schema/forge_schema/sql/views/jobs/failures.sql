-- How many attempts failed, by reason, worker, GPU and day. One with several GPUs stands at each of
-- them; it is one failure where these are not told apart.
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
