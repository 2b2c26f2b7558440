-- How often leaving workers gave jobs back, by worker and day, and what that cost: see lost_time.
CREATE VIEW preemptions AS
SELECT
    worker_id,
    worker,
    day,
    count(DISTINCT (job_id, attempt)) AS preemptions,
    count(DISTINCT (job_id, attempt)) FILTER (WHERE checkpoint_at IS NOT NULL) AS saved,
    count(DISTINCT (job_id, attempt)) FILTER (WHERE next_attempt IS NOT NULL) AS resumed,
    sum(again_s) AS again_s,
    sum(waited_s) AS waited_s,
    sum(restored_s) AS restored_s,
    sum(lost_s) AS lost_s
FROM lost_time
WHERE reason IN ('preempted', 'drained')
GROUP BY worker_id, worker, day;
