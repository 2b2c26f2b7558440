-- Wakes as many idle workers as there are jobs in `lanes`, a lane per job: those that can run them
-- with what they have free, the preferred ones first: spot machines where jobs prefer them, wished models
-- in their order, the cheapest for what it computes, and then what has the least to fetch. Gangs among
-- them are formed. `parts` has the text of each job's `forge_parts`, if known, and `avoids` that of the
-- workers that leave it to others for a while. The calling statement has made the jobs ready, or given back their slots.
-- A worker that is the last resort is left asleep if others that are woken have room for all jobs.
-- The notification is `kind:workers:snapshot`. A worker that the snapshot does not show may have
-- become idle at the same moment, without seeing the jobs: it looks too. So one is sent even if it
-- names nobody, except when the jobs have been ready for a while: kind `again`.
-- Locks: idle, skipping locked; for gangs, see `forge_form`.
CREATE OR REPLACE FUNCTION forge_wake(
    lanes integer[], kind text DEFAULT 'ready', parts text[] DEFAULT NULL,
    avoids text[] DEFAULT NULL
) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Taken before any look at the idle workers.
    seen text := forge_seen();
    named bigint[] := '{}';
    found bigint[];
    room bigint;
    made record;
    last_resort boolean;
BEGIN
    -- A busy pool has no idle workers to choose from, and most calls end here.
    IF NOT EXISTS (SELECT FROM idle) THEN
        IF cardinality(lanes) > 0 AND kind <> 'again' THEN
            PERFORM forge_hint(kind, named, seen);
        END IF;
        RETURN;
    END IF;
    FOR made IN
        SELECT
            shape.id AS shape_id, shape.target, shape.gpus, shape.nodes,
            of_parts.parts::integer[] AS parts,
            string_to_array(string_agg(of_parts.avoids, ','), ',')::bigint[] AS avoids,
            sum(of_parts.jobs)::bigint AS jobs
        FROM (
            SELECT
                lane.shape_id, count(*) AS jobs,
                string_agg(trim('{}' FROM of_job.avoids), ',') AS avoids,
                -- Each look reads all idle workers, so a batch of many bundles has only a few.
                CASE WHEN rank() OVER (
                    PARTITION BY lane.shape_id ORDER BY count(*) DESC, of_job.parts
                ) <= 8 THEN of_job.parts END AS parts
            FROM unnest(lanes, parts, avoids) AS of_job (lane_id, parts, avoids)
            JOIN lane ON lane.id = of_job.lane_id
            WHERE NOT lane.paused
            GROUP BY lane.shape_id, of_job.parts
        ) AS of_parts
        JOIN shape ON shape.id = of_parts.shape_id
        GROUP BY shape.id, of_parts.parts
    LOOP
        IF made.nodes > 1 THEN
            PERFORM forge_form(ARRAY(
                SELECT id FROM lane WHERE id = ANY(lanes) AND shape_id = made.shape_id
            ));
            CONTINUE;
        END IF;
        FOREACH last_resort IN ARRAY ARRAY[false, true] LOOP
            WITH offered AS (
                SELECT *, CASE WHEN made.gpus > 0 THEN gpu_speed ELSE cpu_speed END AS speed
                FROM idle
            ),
            ranked AS MATERIALIZED (
                SELECT idle.worker_id, idle.gpu_model
                FROM offered AS idle
                JOIN shape ON shape.id = made.shape_id
                LEFT JOIN draft ON draft.worker_id = idle.worker_id
                -- Those that cannot have enough free are not worth a closer look.
                WHERE forge_idle_fits(
                        shape, shape.cpus, shape.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                        idle.gpus, idle.gpu_model, idle.vram_mb
                    )
                    -- One that keeps room for a gang was woken for the job before, in vain.
                    AND (kind <> 'again' OR draft.worker_id IS NULL)
                ORDER BY
                    -- Those that keep room for a gang may not take the job.
                    draft.worker_id IS NOT NULL,
                    idle.worker_id = ANY(made.avoids),
                    shape.labels ? 'forge.prefers_spot' AND NOT idle.spot,
                    CASE WHEN strpos(shape.gpu_model, '|') > 0 THEN
                        forge_wish(shape.gpu_model, idle.gpu_model)
                    END,
                    -- Speeds that were not all measured in one way say nothing.
                    forge_dear(idle.price, CASE
                        WHEN min(floor(idle.speed * 4)) OVER () = max(floor(idle.speed * 4)) OVER ()
                            THEN idle.speed
                    END) NULLS FIRST,
                    forge_preference(last_resort, made.parts, idle.warm)
                        + idle.speed DESC
            ),
            -- Compared in this order, and only until there are enough.
            chosen AS MATERIALIZED (
                SELECT able.* FROM ranked
                CROSS JOIN LATERAL (
                    SELECT
                        idle.worker_id, idle.gpu_model,
                        floor(least(
                            idle.jobs,
                            idle.cpus * (1 + 1e-9) / nullif(lent.cpus, 0),
                            idle.memory_mb / nullif(lent.memory_mb, 0),
                            idle.disk_mb / shape.disk_mb,
                            idle.gpus / nullif(shape.gpus, 0)
                        ))::bigint AS jobs
                    FROM idle
                    JOIN worker ON worker.id = idle.worker_id AND worker.boot_id = idle.boot_id
                    JOIN shape ON shape.id = made.shape_id
                    CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
                    WHERE idle.worker_id = ranked.worker_id AND idle.gpu_model = ranked.gpu_model
                        AND (shape.target = 'auto' AND worker.local) = last_resort
                        AND forge_takes_jobs(worker)
                        AND forge_idle_fits(
                            shape, lent.cpus, lent.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                            idle.gpus, idle.gpu_model, idle.vram_mb
                        )
                        AND forge_fits(shape, worker)
                    FOR UPDATE OF idle SKIP LOCKED
                ) AS able
                LIMIT made.jobs
            ),
            woken AS (
                DELETE FROM idle USING chosen
                WHERE idle.worker_id = chosen.worker_id AND idle.gpu_model = chosen.gpu_model
                RETURNING idle.worker_id, chosen.jobs
            )
            SELECT array_agg(woken.worker_id), sum(woken.jobs) INTO found, room FROM woken;
            named := named || found;
            made.jobs := greatest(made.jobs - coalesce(room, 0), 0);
            EXIT WHEN made.jobs = 0 OR made.target <> 'auto';
        END LOOP;
    END LOOP;
    IF cardinality(lanes) > 0 AND (kind <> 'again' OR named <> '{}') THEN
        PERFORM forge_hint(kind, named, seen);
    END IF;
END $$;
