-- Whether a worker has room for a job of a shape once some of its jobs have left.
CREATE OR REPLACE FUNCTION forge_fits_without(wanted integer, machine bigint, jobs bigint[])
RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT wants.cpus <= (worker.cpus - held.cpus) * (1 + 1e-9)
        AND wants.memory_mb <= worker.memory_mb - held.memory_mb
        AND shape.disk_mb <= worker.disk_mb - held.disk_mb
        AND (
            shape.gpus = 0
            OR shape.gpus <= forge_gpus_match(worker.gpus, shape.gpu_model, shape.vram_mb) - held.gpus
        )
    FROM worker
    JOIN shape ON shape.id = wanted
    CROSS JOIN LATERAL forge_lent(shape, worker) AS wants
    CROSS JOIN LATERAL (
        SELECT
            coalesce(sum(lent.cpus), 0) AS cpus, coalesce(sum(lent.memory_mb), 0) AS memory_mb,
            coalesce(sum(other.disk_mb), 0) AS disk_mb, coalesce(sum(other.gpus), 0) AS gpus
        FROM lease
        JOIN lane ON lane.id = lease.lane_id
        JOIN shape AS other ON other.id = lane.shape_id
        CROSS JOIN LATERAL forge_lent(other, worker) AS lent
        WHERE lease.worker_id = worker.id AND lease.job_id <> ALL(jobs)
    ) AS held
    WHERE worker.id = machine
$$;
