-- The leases that a claim of this worker was granted, whose answer was lost, with their jobs as in
-- `finish_and_claim`, and their age in seconds. Those of gangs are `formed`.
SELECT
    lease.job_id, lease.token, lease.attempt, lease.lane_id, lease.nice, lease.failures,
    lease.losses, lease.preemptions, lease.rank, lease.nodes, job.name, job.owner, job.spec,
    job.bundle_digest, job.timeout_s, forge_secrets_of(job.owner, job.spec) AS team,
    forge_parts(job.owner, job.bundle_digest, job.spec) AS parts,
    extract(EPOCH FROM forge_now() - lease.claimed_at)::float8 AS age_s
FROM lease
JOIN job ON job.id = lease.job_id
WHERE lease.worker_id = %(worker_id)s AND lease.nonce = %(nonce)s AND lease.nodes = 1
    AND lease.expires_at > forge_now() AND lease.over IS NULL
