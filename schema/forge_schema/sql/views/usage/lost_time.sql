-- The cost in seconds of each attempt interrupted through no fault of its job: the work after its
-- last stored checkpoint, done again; the wait for the next attempt; and the time until that one's
-- job ran. The latter two are null until they are known. `displaced_by` is the job for which it had to
-- leave, of a higher priority or with guaranteed GPUs, `again_gpu_s` the GPU time that is spent again.
CREATE VIEW lost_time AS
SELECT
    ended.job_id,
    job.name,
    job.owner,
    lane.queue,
    ended.attempt,
    ended.rank,
    ended.worker_id,
    coalesce(worker.name, former_worker.name) AS worker,
    ended.reason,
    ended.detail,
    ended.started_at,
    ended.checkpoint_at,
    ended.finished_at,
    (ended.finished_at AT TIME ZONE 'UTC')::date AS day,
    next.attempt AS next_attempt,
    spent.again_s,
    spent.waited_s,
    spent.restored_s,
    spent.again_s + coalesce(spent.waited_s, 0) + coalesce(spent.restored_s, 0) AS lost_s,
    spent.again_s * coalesce(cardinality(ended.devices), 0) AS again_gpu_s,
    CASE WHEN ended.reason = 'preempted' THEN (
        SELECT (event.detail ->> 'by')::bigint FROM event
        WHERE event.job_id = ended.job_id AND event.action = 'displaced'
            AND event.detail ->> 'attempt' = ended.attempt::text
        LIMIT 1
    ) END AS displaced_by
FROM attempt AS ended
JOIN job ON job.id = ended.job_id
JOIN lane ON lane.id = ended.lane_id
LEFT JOIN worker ON worker.id = ended.worker_id
LEFT JOIN former_worker ON former_worker.id = ended.worker_id
LEFT JOIN LATERAL (
    SELECT later.attempt, later.claimed_at, later.started_at
    FROM (
        SELECT job_id, rank, attempt, claimed_at, started_at FROM attempt
        UNION ALL
        SELECT job_id, rank, attempt, claimed_at, started_at FROM lease
    ) AS later
    WHERE later.job_id = ended.job_id AND later.rank = ended.rank
        AND later.attempt > ended.attempt
    ORDER BY later.attempt
    LIMIT 1
) AS next ON true
CROSS JOIN LATERAL (
    SELECT
        extract(EPOCH FROM ended.finished_at - coalesce(
            ended.checkpoint_at, ended.started_at, ended.finished_at
        ))::double precision AS again_s,
        extract(EPOCH FROM next.claimed_at - ended.finished_at)::double precision AS waited_s,
        extract(EPOCH FROM next.started_at - next.claimed_at)::double precision AS restored_s
) AS spent
WHERE ended.reason IN (
    'preempted', 'drained', 'worker_lost', 'gpu_fault', 'storage_failed', 'start_failed'
);
