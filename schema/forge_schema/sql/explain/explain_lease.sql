-- The lease of a running job: how long the job waited for it, how long it has been held, on how many
-- machines it runs and could, how old the job's newest checkpoint is, and which of its workers is
-- silent, for the longest.
SELECT
    lease.worker_id, forge_phase(lease) AS phase, lease.asked, lease.devices, lease.nodes,
    coalesce((job.spec ->> 'max_nodes')::integer, lease.nodes) AS max_nodes,
    extract(EPOCH FROM lease.claimed_at - lease.ready_at)::float8 AS waited_s,
    extract(EPOCH FROM forge_now() - lease.claimed_at)::float8 AS held_s,
    (
        SELECT extract(EPOCH FROM forge_now() - max(kept.created_at))::float8
        FROM forge_complete_checkpoints(lease.job_id) AS kept
    ) AS saved_s,
    silent.*
FROM lease JOIN job ON job.id = lease.job_id
LEFT JOIN LATERAL (
    SELECT
        worker.name AS silent,
        extract(EPOCH FROM forge_now() - worker.last_seen_at)::float8 AS silent_s,
        extract(EPOCH FROM member.expires_at - forge_now())::float8 AS expires_s
    FROM lease AS member JOIN worker ON worker.id = member.worker_id
    WHERE member.job_id = lease.job_id AND member.over IS NULL AND NOT forge_is_fresh(worker)
    ORDER BY worker.last_seen_at LIMIT 1
) AS silent ON true
WHERE lease.job_id = %(job_id)s AND lease.rank = 0
