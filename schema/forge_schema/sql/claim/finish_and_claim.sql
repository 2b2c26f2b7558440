-- Accepts the results of finished leases and claims up to `count` jobs, in one round trip. Without
-- leases to finish it is a plain claim. The members of a run on several machines are left alone.
-- The arrays about leases are sorted by job, then token, so that a lease finds its place in them by
-- width_bucket, a binary search. Deleting by a join with unnest() makes the statement a sixth
-- slower.
-- A lane under limits shows as many jobs as they leave room for, and each claimed one takes their
-- slots. The slots of finished jobs are given back first, so that the next jobs can have them.
-- Of an owner's jobs of the same priority, the worker takes one whose parts it has, which are `warm`,
-- before one whose parts it would have to fetch. For a while, it leaves a job that failed on it to
-- others, and those of the lanes that it `leaves` to spot machines.
-- A worker that keeps room for a gang has `short_s` seconds for jobs that need this room, those beyond
-- `any_nices`: they are passed over if they may take longer. Any other worker has NULL.
-- One that was drafted for another gang than `drafted`, or by now, has been `stale` since it read the
-- lanes, and is given no job. So is one with a member among the `others` that end, since it may have to
-- keep room for the next run.
-- `heads`, in the first row, has the first `nice` of each lane that shows a job, if the caller did
-- not ask for all.
-- Locks: lease by job, then ready and slot (skipping locked).
WITH done AS (
    DELETE FROM lease
    WHERE job_id = ANY(%(job_ids)s::bigint[])
        AND token = (%(tokens)s::bigint[])[width_bucket(job_id, %(job_ids)s::bigint[])]
        AND nonce = (%(nonces)s::uuid[])[width_bucket(job_id, %(job_ids)s::bigint[])]
        AND nodes = 1
    RETURNING
        job_id, token, nonce, worker_id, lane_id, attempt, ready_at, claimed_at, started_at,
        devices, forge_now() AS now, width_bucket(job_id, %(job_ids)s::bigint[]) AS n
),
accepted AS (
    INSERT INTO outcome (
        job_id, state, reason, attempt, token, nonce, exit_code, finished_at, worker_id, lane_id,
        ready_at, claimed_at, started_at, devices, gpu_seconds, energy_j, cost, cpu_seconds,
        peak_memory_mb, peak_vram_mb
    )
    SELECT
        job_id, 'succeeded', 'succeeded', attempt, token, nonce, 0, greatest(now, claimed_at),
        worker_id, lane_id, ready_at, claimed_at, started_at, devices,
        (%(gpu_seconds)s::float8[])[n], (%(energies)s::float8[])[n], (%(costs)s::float8[])[n],
        (%(cpu_seconds)s::float8[])[n], (%(peak_memories)s::integer[])[n],
        (%(peak_vrams)s::integer[])[n]
    FROM done
),
returned AS (
    UPDATE slot SET job_id = NULL FROM done WHERE slot.job_id = done.job_id RETURNING slot.n
),
-- The heads of the lanes, best first, read without a lock. Each lane is read in ranges, which skip
-- what this worker has already emptied.
peeked AS MATERIALIZED (
    SELECT
        peek.ctid, peek.nice, peek.job_id, peek.passed_at, n, lane.id AS lane_id, lane.owner,
        lane.limited,
        -- One that came back, or was ready a minute ago, is not passed by.
        CASE
            WHEN %(warm)s::integer[] <> '{}' AND peek.attempt = 0
                AND peek.ready_at > (SELECT forge_now() - '1 minute'::interval)
                THEN forge_preference(false, peek.parts, %(warm)s::integer[])
            ELSE 15
        END AS preference,
        ((%(leaves)s::boolean[])[n] OR coalesce(%(worker_id)s = ANY(peek.avoids), false))
            AND peek.ready_at > (SELECT forge_now() - forge_avoidance()) AS avoided
    FROM generate_subscripts(%(lanes)s::integer[], 1) AS n
    JOIN lane ON lane.id = (%(lanes)s::integer[])[n] AND NOT lane.paused
    CROSS JOIN LATERAL (
        SELECT ctid, nice, job_id, passed_at, attempt, ready_at, parts, avoids FROM ready
        WHERE lane_id = (%(lanes)s::integer[])[n]
            AND (nice, job_id) > ((%(after_nices)s::smallint[])[n], (%(after_jobs)s::bigint[])[n])
            AND nice <= (%(last_nices)s::smallint[])[n]
            AND (NOT lane.limited OR nice <= (SELECT forge_yields_to(lane.queue)))
        ORDER BY nice, job_id
        LIMIT CASE
            WHEN NOT lane.limited THEN (%(peeks)s::integer[])[n]
            -- The first ones may take too long.
            ELSE least(
                (%(peeks)s::integer[])[n],
                forge_room(lane.id, %(peek)s, (SELECT count(*) FROM returned))
                    * CASE WHEN %(short_s)s::float8 IS NULL THEN 1 ELSE %(peek)s END
            )
        END
    ) AS peek
),
known AS MATERIALIZED (
    SELECT EXISTS (
        SELECT FROM draft
        WHERE worker_id = %(worker_id)s AND until > forge_now()
            AND job_id IS DISTINCT FROM %(drafted)s::bigint
    ) OR EXISTS (
        SELECT FROM lease WHERE job_id = ANY(%(others)s::bigint[]) AND nodes > 1
    ) AS stale
),
head AS MATERIALIZED (
    SELECT ctid, passed_at, limited FROM peeked
    WHERE NOT (SELECT stale FROM known) AND NOT avoided AND (
        %(short_s)s::float8 IS NULL
        OR nice <= (%(any_nices)s::smallint[])[n]
        OR forge_longest(job_id) <= %(short_s)s::float8
    )
    -- Each job adds to its owner's share, so that a claim of many is shared too.
    ORDER BY
        nice,
        (%(shares)s::float8[])[n] - (%(steps)s::float8[])[n]
            + sum((%(steps)s::float8[])[n]) OVER (
                PARTITION BY owner ORDER BY nice, preference DESC, job_id
                ROWS UNBOUNDED PRECEDING
            ),
        job_id
    LIMIT %(peek)s
),
taken AS (
    DELETE FROM ready
    WHERE ctid = ANY(ARRAY(
        SELECT free.ctid
        FROM head
        CROSS JOIN LATERAL (
            SELECT ctid, lane_id, job_id FROM ready
            WHERE ctid = head.ctid
                -- Not one that was passed by just now: the DELETE would not see its new version.
                AND passed_at IS NOT DISTINCT FROM head.passed_at
            FOR UPDATE SKIP LOCKED
        ) AS free
        WHERE NOT head.limited OR forge_take_slots(free.lane_id, free.job_id)
        LIMIT %(count)s
    ))
    RETURNING
        lane_id, nice, job_id, attempt + 1 AS attempt, failures, losses, preemptions, ready_at, parts,
        nextval('lease_token') AS token, forge_now() AS now
),
leased AS (
    INSERT INTO lease (
        job_id, rank, token, nonce, worker_id, lane_id, nice, attempt, failures, losses,
        preemptions, ready_at, claimed_at, expires_at
    )
    SELECT
        job_id, 0, token, %(nonce)s, %(worker_id)s, lane_id, nice, attempt, failures, losses,
        preemptions, ready_at, now, now + %(ttl)s
    FROM taken
)
SELECT
    cardinality(ARRAY(SELECT job_id FROM done)) AS finished,
    EXISTS (SELECT FROM head) OR EXISTS (SELECT FROM peeked WHERE avoided) AS seen,
    (SELECT stale FROM known) AS stale,
    CASE WHEN %(many)s AND row_number() OVER () = 1 THEN (
        SELECT coalesce(json_object_agg(lane_id, nice), '{}')
        FROM (SELECT lane_id, min(nice) AS nice FROM peeked GROUP BY lane_id) AS first
    ) END AS heads, taken.job_id, taken.token,
    taken.attempt, taken.lane_id, taken.nice, taken.failures, taken.losses, taken.preemptions,
    job.name, job.owner, job.spec, job.bundle_digest, job.timeout_s,
    forge_secrets_of(job.owner, job.spec) AS team,
    taken.attempt > 1 OR job.source_job_id IS NOT NULL AS resumes, taken.parts
FROM (SELECT) AS always
LEFT JOIN taken ON true
LEFT JOIN job ON job.id = taken.job_id
