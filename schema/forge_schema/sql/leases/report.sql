-- Records what the holder of a lease is doing; the first `running` starts the job's time limit.
UPDATE lease
SET phase = %(phase)s,
    progress = coalesce(%(progress)s::float8, lease.progress),
    devices = coalesce(%(devices)s::text[], lease.devices),
    started_at = CASE
        WHEN %(phase)s::phase = 'running' THEN coalesce(started_at, forge_now()) ELSE started_at
    END,
    deadline_at = CASE
        WHEN %(phase)s::phase = 'running'
            THEN coalesce(deadline_at, forge_now() + make_interval(secs => job.timeout_s))
        ELSE deadline_at
    END
FROM job
WHERE lease.job_id = %(job_id)s AND lease.token = %(token)s AND lease.nonce = %(nonce)s
    AND job.id = lease.job_id AND lease.over IS NULL
RETURNING lease.asked, lease.nodes
