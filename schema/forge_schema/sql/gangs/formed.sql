-- Hands a worker the leases that it got as one of the machines of a gang, since it found nothing with a
-- claim of this name; the columns are those of `claimed_before`. From now on they last for a TTL: the
-- gang was formed without knowing that of each worker. The phase tells that they were fetched.
-- It has an index of its own and, if there are none, writes nothing: idle workers ask again and again.
-- Locks: lease.
WITH fetched AS (
    UPDATE lease SET
        -- A repeated claim gets what is left.
        expires_at = CASE phase
            WHEN 'claimed' THEN forge_now() + %(ttl)s::interval ELSE expires_at
        END,
        phase = CASE phase WHEN 'claimed' THEN 'preparing' ELSE phase END
    WHERE worker_id = %(worker_id)s AND nonce = %(nonce)s AND nodes > 1
        AND expires_at > forge_now() AND over IS NULL
    RETURNING *
)
SELECT
    fetched.job_id, fetched.token, fetched.attempt, fetched.lane_id, fetched.nice, fetched.failures,
    fetched.losses, fetched.preemptions, fetched.rank, fetched.nodes, job.name, job.owner, job.spec,
    job.bundle_digest, job.timeout_s, forge_secrets_of(job.owner, job.spec) AS team,
    forge_parts(job.owner, job.bundle_digest, job.spec) AS parts,
    extract(EPOCH FROM forge_now() + %(ttl)s::interval - fetched.expires_at)::float8 AS age_s
FROM fetched
JOIN job ON job.id = fetched.job_id
