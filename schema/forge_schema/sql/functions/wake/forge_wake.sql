-- Wakes as many idle workers as there are jobs in `lanes`, a lane per job: those that can run them
-- with what they have free. The calling statement has made the jobs ready, or given back their slots.
-- The notification is `kind:workers:snapshot`. A worker that the snapshot does not show may have
-- become idle at the same moment, without seeing the jobs: it looks too. So one is sent even if it
-- names nobody, except when the jobs have been ready for a while: kind `again`.
-- Locks: idle, skipping locked.
CREATE OR REPLACE FUNCTION forge_wake(lanes integer[], kind text DEFAULT 'ready') RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Taken before any look at the idle workers.
    seen text := pg_current_snapshot()::text;
    named bigint[] := '{}';
    found bigint[];
    made record;
    n integer := 1;
BEGIN
    FOR made IN
        SELECT lane.shape_id, count(*) AS jobs
        FROM unnest(lanes) AS of_job (lane_id) JOIN lane ON lane.id = of_job.lane_id
        -- A busy pool has no idle workers to choose from.
        WHERE NOT lane.paused AND EXISTS (SELECT FROM idle)
        GROUP BY lane.shape_id
    LOOP
        WITH chosen AS MATERIALIZED (
            SELECT idle.worker_id, idle.gpu_model
            FROM shape
            CROSS JOIN idle
            JOIN worker ON worker.id = idle.worker_id AND worker.boot_id = idle.boot_id
            CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
            WHERE shape.id = made.shape_id
                AND worker.command IS NULL
                AND worker.status IN ('connecting', 'idle', 'busy')
                AND lent.cpus <= idle.cpus * (1 + 1e-9)
                AND lent.memory_mb <= idle.memory_mb
                AND shape.disk_mb <= idle.disk_mb
                AND shape.gpus <= idle.gpus
                AND (shape.gpus = 0 OR idle.gpu_model = '' OR (
                    shape.vram_mb <= idle.vram_mb
                    AND (
                        forge_glob(shape.gpu_model, idle.gpu_model)
                        OR forge_glob('* ' || shape.gpu_model, idle.gpu_model)
                    )
                ))
                AND forge_fits(shape, worker)
            LIMIT made.jobs
            FOR UPDATE OF idle SKIP LOCKED
        ),
        woken AS (
            DELETE FROM idle USING chosen
            WHERE idle.worker_id = chosen.worker_id AND idle.gpu_model = chosen.gpu_model
            RETURNING idle.worker_id
        )
        SELECT array_agg(worker_id) INTO found FROM woken;
        named := named || found;
    END LOOP;
    -- A notification is shorter than 8,000 bytes.
    IF length(seen) > 1000 THEN
        seen := format('%1$s:%1$s:', split_part(seen, ':', 1));
    END IF;
    IF kind = 'again' AND named = '{}' THEN
        RETURN;
    END IF;
    WHILE cardinality(lanes) > 0 AND n <= greatest(cardinality(named), 1) LOOP
        PERFORM pg_notify('forge', concat_ws(
            ':', kind, array_to_string(named[n:n + 299], ','), seen
        ));
        n := n + 300;
    END LOOP;
END $$;
