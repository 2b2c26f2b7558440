-- Records that a worker's agent was replaced during a job, once for each agent that continues it.
WITH held AS (
    SELECT worker.id, worker.name, lease.job_id, lease.token, lease.attempt, lease.claimed_at
    FROM lease
    JOIN worker ON worker.id = lease.worker_id
    WHERE lease.job_id = %(job_id)s AND lease.token = %(token)s AND lease.nonce = %(nonce)s
        AND lease.over IS NULL
)
INSERT INTO event (at, actor, action, job_id, worker_id, token, detail)
SELECT
    forge_now(), 'worker:' || id, 'agent replaced', job_id, id, token,
    jsonb_build_object(
        'worker', name, 'attempt', attempt, 'boot_id', %(boot_id)s::uuid, 'phase', %(phase)s::text
    )
FROM held
WHERE NOT EXISTS (
    SELECT FROM event AS told
    WHERE told.job_id = held.job_id AND told.at >= held.claimed_at
        AND told.action = 'agent replaced' AND told.token = held.token
        AND told.detail ->> 'boot_id' = %(boot_id)s::uuid::text
)
RETURNING id
