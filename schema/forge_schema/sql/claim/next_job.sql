-- The first job of the first of some lanes that has one, which a full worker may prepare for. Nothing
-- is locked, and nobody is promised it. A job beyond its limits counts if one of its owner's jobs runs on
-- the worker, since that may end first.
SELECT
    job.id AS job_id, 0 AS token, head.attempt + 1 AS attempt, lane.id AS lane_id, head.nice,
    head.failures, head.losses, head.preemptions, job.name, job.owner, job.spec, job.bundle_digest,
    job.timeout_s, forge_secrets_of(job.owner, job.spec) AS team,
    forge_parts(job.owner, job.bundle_digest, job.spec) AS parts
FROM unnest(%(lanes)s::integer[]) WITH ORDINALITY AS one (lane_id, place)
JOIN lane ON lane.id = one.lane_id AND NOT lane.paused
CROSS JOIN LATERAL (
    SELECT nice, job_id, attempt, failures, losses, preemptions FROM ready
    WHERE ready.lane_id = lane.id AND ready.job_id <> ALL(%(past)s::bigint[])
    ORDER BY nice, job_id
    LIMIT CASE
        WHEN lane.limited AND NOT EXISTS (
            SELECT FROM lease JOIN lane AS own ON own.id = lease.lane_id
            WHERE lease.worker_id = %(worker_id)s AND own.owner = lane.owner
        ) THEN forge_room(lane.id, 1)
        ELSE 1
    END
) AS head
JOIN job ON job.id = head.job_id
ORDER BY one.place
LIMIT 1
