-- Whether a job of a shape, to which its worker lends so much, fits into what an idle worker has free.
CREATE OR REPLACE FUNCTION forge_idle_fits(
    s shape, lent_cpus double precision, lent_memory_mb integer, cpus double precision,
    memory_mb integer, disk_mb integer, gpus integer, gpu_model text, vram_mb integer
) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lent_cpus <= cpus * (1 + 1e-9)
    AND lent_memory_mb <= memory_mb
    AND s.disk_mb <= disk_mb
    AND s.gpus <= gpus
    AND (s.gpus = 0 OR gpu_model = '' OR (
        s.vram_mb <= vram_mb
        AND forge_is_model(s.gpu_model, gpu_model)
    ))
$$;
