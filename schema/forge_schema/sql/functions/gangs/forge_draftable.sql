-- The workers to draft for a gang, as many as are `missing`, or none if there are too few: those that
-- its earlier runs could reach, of these those that have room for it now, then those whose jobs will
-- probably end first. How long a job still runs follows from its progress; else it is taken to be ten
-- minutes, or less by its time limit. One that will leave for the gang may end at once.
-- Among equals the choice is random, but the same as long as the gang waits.
-- Of workers that run one job at most, up to 16 times as many: each is kept free only from the end of
-- that job, and the first ones that are end the wait of all. On others room would add up in vain.
-- They are alike, as `forge_alike` says, and like the workers drafted before.
CREATE OR REPLACE FUNCTION forge_draftable(
    wanted integer, gang bigint, missing integer
) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    WITH urgent AS MATERIALIZED (
        SELECT lane.queue, job.nice
        FROM job
        JOIN lane ON lane.id = job.lane_id
        JOIN queue ON queue.name = lane.queue AND queue.preemption = 'higher-priority'
        WHERE job.id = gang
    ),
    lent AS MATERIALIZED (
        SELECT able.job_id FROM job CROSS JOIN LATERAL forge_displaceable(
            job.lane_id, job.nice, false, forge_is_guaranteed(job.lane_id), by_worker => true
        ) AS able
        WHERE job.id = gang
    ),
    holds AS MATERIALIZED (
        SELECT
            lease.worker_id, count(*) AS jobs,
            max(least(
                CASE
                    WHEN (lane.queue, true) IN (SELECT queue, lease.nice > nice FROM urgent) THEN 0
                    WHEN lease.job_id IN (SELECT job_id FROM lent) THEN 0
                    WHEN progress > 0.05 THEN ran.seconds * (1 - progress) / progress ELSE 600
                END,
                extract(EPOCH FROM lease.deadline_at - forge_now())::float8
            )) AS left_s
        FROM lease
        JOIN lane ON lane.id = lease.lane_id
        CROSS JOIN LATERAL (
            SELECT extract(EPOCH FROM forge_now() - lease.claimed_at)::float8 AS seconds
        ) AS ran
        GROUP BY lease.worker_id
    ),
    unreached AS MATERIALIZED (
        SELECT worker_id FROM attempt_row WHERE job_id = gang AND reason = 'preflight_failed'
    ),
    before AS MATERIALIZED (
        SELECT forge_alike(shape, worker, job.spec) AS value
        FROM draft JOIN worker ON worker.id = draft.worker_id
        JOIN job ON job.id = draft.job_id
        JOIN shape ON shape.id = wanted
        WHERE draft.job_id = gang
        LIMIT 1
    ),
    able AS MATERIALIZED (
        SELECT
            worker.id, forge_alike(shape, worker, job.spec) AS value, coalesce(holds.left_s, 0) AS left_s,
            coalesce(holds.jobs, 0) AS jobs,
            worker.id IN (SELECT worker_id FROM unreached) AS unreached,
            EXISTS (
                SELECT FROM idle
                WHERE idle.worker_id = worker.id AND idle.nonce IS NOT NULL
                    AND forge_idle_fits(
                        shape, lent.cpus, lent.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                        idle.gpus, idle.gpu_model, idle.vram_mb
                    )
            ) AS free
        FROM shape
        JOIN job ON job.id = gang
        JOIN worker ON forge_serves(shape, worker)
        CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
        LEFT JOIN holds ON holds.worker_id = worker.id
        WHERE shape.id = wanted
            AND forge_joins(worker)
            AND NOT EXISTS (SELECT FROM draft WHERE draft.worker_id = worker.id)
            AND (
                NOT EXISTS (SELECT FROM before)
                OR forge_alike(shape, worker, job.spec) = (SELECT value FROM before)
            )
    ),
    ranked AS MATERIALIZED (
        SELECT
            *,
            row_number() OVER (
                PARTITION BY value
                ORDER BY unreached, free DESC, left_s, hashint8extended(id, gang), id
            ) AS n
        FROM able
    ),
    best AS (
        SELECT value FROM ranked WHERE n = missing
        ORDER BY unreached, free DESC, left_s, value
        LIMIT 1
    )
    SELECT ARRAY(
        SELECT ranked.id
        FROM ranked JOIN best ON ranked.value IS NOT DISTINCT FROM best.value
        WHERE ranked.n <= missing OR (ranked.jobs <= 1 AND ranked.n <= 16 * missing)
        ORDER BY ranked.n
    )
$$;
