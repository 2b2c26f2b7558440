-- The running jobs of a worker, the longest-running first, each with its newest sample.
SELECT
    lease.job_id, lease.rank, lease.nodes, job.name, job.owner, lane.queue, lease.attempt, lease.phase,
    lease.progress, lease.asked, lease.devices, lease.claimed_at,
    extract(EPOCH FROM forge_now() - lease.claimed_at)::float8 AS held_s,
    looked.values AS used
FROM lease
JOIN job ON job.id = lease.job_id
JOIN lane ON lane.id = lease.lane_id
LEFT JOIN LATERAL (
    SELECT sample.values
    FROM sample
    WHERE sample.job_id = lease.job_id AND sample.token = lease.token
        AND sample.rank = lease.rank AND sample.at >= lease.claimed_at
    ORDER BY sample.number DESC
    LIMIT 1
) AS looked ON true
WHERE lease.worker_id = %(worker_id)s AND lease.over IS NULL
ORDER BY lease.claimed_at, lease.job_id, lease.rank
