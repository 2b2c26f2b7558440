-- The lease of a running job: how long the job waited for it, how long it has been held, on how many
-- machines it runs and could, and how old the job's newest checkpoint is.
SELECT
    worker_id, forge_phase(lease) AS phase, asked, devices, nodes,
    coalesce((job.spec ->> 'max_nodes')::integer, nodes) AS max_nodes,
    extract(EPOCH FROM claimed_at - ready_at)::float8 AS waited_s,
    extract(EPOCH FROM forge_now() - claimed_at)::float8 AS held_s,
    (
        SELECT extract(EPOCH FROM forge_now() - max(kept.created_at))::float8
        FROM forge_complete_checkpoints(lease.job_id) AS kept
    ) AS saved_s
FROM lease JOIN job ON job.id = lease.job_id
WHERE job_id = %(job_id)s AND rank = 0
