-- The idle workers that a gang can have, as many as it takes and some to spare, the best first: those
-- that its earlier runs could reach, of these those drafted for it, then spot machines if it prefers them,
-- the cheaper ones, those that `forge_preference` prefers, and the faster ones. They are alike, as `forge_alike` says; of the
-- kinds that there are enough of, a gang with a range of machines takes the most frequent. Beyond its
-- least number, it takes only machines that could be reached.
CREATE OR REPLACE FUNCTION forge_offers(
    wanted integer, gang bigint, its_nice smallint, its_parts integer[]
) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    WITH unreached AS MATERIALIZED (
        SELECT worker_id FROM attempt_row WHERE job_id = gang AND reason = 'preflight_failed'
    ),
    takes AS MATERIALIZED (
        SELECT greatest(shape.nodes, (job.spec ->> 'max_nodes')::integer) AS most
        FROM job CROSS JOIN shape
        WHERE job.id = gang AND shape.id = wanted
    ),
    able AS MATERIALIZED (
        SELECT
            idle.worker_id, shape.nodes, forge_alike(shape, worker, job.spec) AS value,
            idle.worker_id IN (SELECT worker_id FROM unreached) AS unreached,
            bool_or(draft.job_id IS NOT NULL) AS drafted,
            bool_and(shape.labels ? 'forge.prefers_spot' AND NOT idle.spot) AS second,
            -- Alike, they are about as fast.
            max(forge_dear(idle.price, NULL)) AS dear,
            max(forge_preference(
                shape.target = 'auto' AND worker.local, its_parts, idle.warm
            ) + CASE WHEN shape.gpus > 0 THEN idle.gpu_speed ELSE idle.cpu_speed END) AS preference
        FROM shape
        JOIN job ON job.id = gang
        JOIN idle ON idle.nonce IS NOT NULL
        JOIN worker ON worker.id = idle.worker_id AND worker.boot_id = idle.boot_id
        CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
        LEFT JOIN draft ON draft.worker_id = idle.worker_id AND draft.until > forge_now()
        WHERE shape.id = wanted
            AND forge_joins(worker)
            AND (draft.job_id IS NULL OR draft.job_id = gang OR its_nice < draft.nice)
            AND forge_idle_fits(
                shape, lent.cpus, lent.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                idle.gpus, idle.gpu_model, idle.vram_mb
            )
            AND forge_serves(shape, worker)
        GROUP BY idle.worker_id, shape.nodes, value
    ),
    ranked AS MATERIALIZED (
        SELECT
            *,
            row_number() OVER (
                PARTITION BY value
                ORDER BY
                    unreached, drafted DESC, second, dear NULLS FIRST, preference DESC, worker_id
            ) AS n,
            least(count(*) OVER (PARTITION BY value), takes.most) AS takes
        FROM able CROSS JOIN takes
    ),
    best AS (
        SELECT value, takes FROM ranked
        WHERE n = nodes
        ORDER BY
            unreached, drafted DESC, second, takes DESC, dear NULLS FIRST, preference DESC, value
        LIMIT 1
    )
    SELECT ARRAY(
        SELECT ranked.worker_id
        FROM ranked JOIN best ON ranked.value IS NOT DISTINCT FROM best.value CROSS JOIN takes
        WHERE ranked.n <= best.takes + 16
            AND (NOT ranked.unreached OR takes.most = ranked.nodes OR ranked.n <= ranked.nodes)
        ORDER BY ranked.n
    )
$$;
