-- `finish_and_claim` for its common case: at most one lease ends as a success, and one job is claimed,
-- of lanes without limits, by a worker that keeps no room for another job and has no job's parts.
-- Without the order among several jobs, it takes two thirds of the time.
-- Locks: lease, then ready (skipping locked).
WITH done AS (
    DELETE FROM lease
    WHERE job_id = %(job_id)s::bigint AND rank = 0 AND token = %(token)s::bigint AND nonce = %(ended_nonce)s::uuid
        AND nodes = 1
    RETURNING
        job_id, token, nonce, worker_id, lane_id, attempt, ready_at, claimed_at, started_at,
        devices, forge_now() AS now
),
accepted AS (
    INSERT INTO outcome (
        job_id, state, reason, attempt, token, nonce, exit_code, finished_at, worker_id, lane_id,
        ready_at, claimed_at, started_at, devices, gpu_seconds, energy_j, cost, cpu_seconds,
        peak_memory_mb, peak_vram_mb
    )
    SELECT
        job_id, 'succeeded', 'succeeded', attempt, token, nonce, 0, greatest(now, claimed_at),
        worker_id, lane_id, ready_at, claimed_at, started_at, devices, %(gpu_seconds)s::float8,
        %(energy_j)s::float8, %(cost)s::float8, %(cpu_seconds)s::float8,
        %(peak_memory_mb)s::integer, %(peak_vram_mb)s::integer
    FROM done
),
returned AS (
    UPDATE slot SET job_id = NULL FROM done WHERE slot.job_id = done.job_id
),
heads AS MATERIALIZED (
    SELECT peek.*, shown.lane_id, lane.limited
    FROM unnest(
        %(lanes)s::integer[], %(shares)s::float8[], %(after_nices)s::smallint[],
        %(after_jobs)s::bigint[], %(last_nices)s::smallint[]
    ) AS shown (lane_id, share, after_nice, after_job, last_nice)
    JOIN lane ON lane.id = shown.lane_id AND NOT lane.paused
    CROSS JOIN LATERAL (
        SELECT ctid, nice, job_id, passed_at FROM ready
        WHERE ready.lane_id = shown.lane_id
            AND (nice, job_id) > (shown.after_nice, shown.after_job)
            AND nice <= shown.last_nice
        ORDER BY nice, job_id
        LIMIT %(peek)s
    ) AS peek
    ORDER BY nice, share, job_id
),
taken AS (
    DELETE FROM ready
    WHERE ctid = (
        SELECT free.ctid
        FROM heads
        CROSS JOIN LATERAL (
            SELECT ctid FROM ready
            WHERE ctid = heads.ctid
                -- Not one that was passed by just now: the DELETE would not see its new version.
                AND passed_at IS NOT DISTINCT FROM heads.passed_at
            FOR UPDATE SKIP LOCKED
        ) AS free
        WHERE NOT heads.limited
        LIMIT 1
    )
    RETURNING
        lane_id, nice, job_id, attempt, failures, losses, preemptions, ready_at, parts,
        forge_now() AS now, nextval('lease_token') AS token
),
leased AS (
    INSERT INTO lease (
        job_id, rank, token, nonce, worker_id, lane_id, nice, attempt, failures, losses,
        preemptions, ready_at, claimed_at, expires_at
    )
    SELECT
        job_id, 0, token, %(nonce)s, %(worker_id)s, lane_id, nice, attempt + 1, failures, losses,
        preemptions, ready_at, now, now + %(ttl)s
    FROM taken
)
SELECT
    (SELECT count(*) FROM done) AS finished, ARRAY(SELECT lane_id FROM heads) AS heads,
    ARRAY(SELECT nice FROM heads) AS nices,
    taken.job_id, taken.token, taken.attempt + 1 AS attempt, taken.lane_id, taken.nice,
    taken.failures, taken.losses, taken.preemptions, job.name, job.owner, job.spec,
    job.bundle_digest, job.timeout_s, taken.attempt > 0 OR job.source_job_id IS NOT NULL AS resumes,
    taken.parts
FROM (SELECT) AS always
LEFT JOIN taken ON true
LEFT JOIN job ON job.id = taken.job_id
