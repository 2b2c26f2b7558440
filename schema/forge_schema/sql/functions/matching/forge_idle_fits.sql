-- Whether a job of a shape, to which its worker lends so much, fits into what an idle worker has free.
CREATE OR REPLACE FUNCTION forge_idle_fits(
    i idle, s shape, lent_cpus double precision, lent_memory_mb integer
) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT lent_cpus <= i.cpus * (1 + 1e-9)
    AND lent_memory_mb <= i.memory_mb
    AND s.disk_mb <= i.disk_mb
    AND s.gpus <= i.gpus
    AND (s.gpus = 0 OR i.gpu_model = '' OR (
        s.vram_mb <= i.vram_mb
        AND (
            forge_glob(s.gpu_model, i.gpu_model)
            OR forge_glob('* ' || s.gpu_model, i.gpu_model)
        )
    ))
$$;
