-- The lease of a running job: how long the job waited for it, how long it has been held, and on how
-- many machines it runs and could.
SELECT
    worker_id, forge_phase(lease) AS phase, asked, devices, nodes,
    coalesce((job.spec ->> 'max_nodes')::integer, nodes) AS max_nodes,
    extract(EPOCH FROM claimed_at - ready_at)::float8 AS waited_s,
    extract(EPOCH FROM forge_now() - claimed_at)::float8 AS held_s
FROM lease JOIN job ON job.id = lease.job_id
WHERE job_id = %(job_id)s AND rank = 0
