-- Whether an idle worker has room for a job of a shape.
CREATE OR REPLACE FUNCTION forge_has_idle(wanted integer) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM shape
        CROSS JOIN idle
        JOIN worker ON worker.id = idle.worker_id AND worker.boot_id = idle.boot_id
        CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
        WHERE shape.id = wanted AND forge_takes_jobs(worker) AND forge_fits(shape, worker)
            AND forge_idle_fits(
                shape, lent.cpus, lent.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                idle.gpus, idle.gpu_model, idle.vram_mb
            )
    )
$$;
