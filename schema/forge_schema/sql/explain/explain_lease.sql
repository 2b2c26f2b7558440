-- The lease of a running job: how long the job waited for it, and how long it has been held.
SELECT
    worker_id, phase, asked, devices,
    extract(EPOCH FROM claimed_at - ready_at)::float8 AS waited_s,
    extract(EPOCH FROM forge_now() - claimed_at)::float8 AS held_s
FROM lease
WHERE job_id = %(job_id)s AND rank = 0
