-- The lease by which a job runs: how long it waited for it, and for how long it has it.
SELECT
    worker_id, phase, asked, devices,
    extract(EPOCH FROM claimed_at - ready_at)::float8 AS waited_s,
    extract(EPOCH FROM forge_now() - claimed_at)::float8 AS held_s
FROM lease
WHERE job_id = %(job_id)s AND rank = 0
