-- The CPUs and the memory (MiB) that a worker lends to a job of a shape. A 0 in the shape requests
-- a share of the worker. GPU jobs share three quarters of it in proportion to their GPUs, so that
-- the last quarter is left for jobs without. Those get memory in proportion to their CPUs, but at
-- least 1 GiB if the worker has it.
CREATE OR REPLACE FUNCTION forge_lent(s shape, w worker)
RETURNS TABLE (cpus double precision, memory_mb integer)
LANGUAGE sql STABLE PARALLEL SAFE ROWS 1 AS $$
    SELECT
        CASE
            WHEN s.cpus > 0 THEN s.cpus
            ELSE floor(w.cpus * part.of_gpus * 1000) / 1000
        END,
        CASE
            WHEN s.memory_mb > 0 THEN s.memory_mb
            WHEN s.gpus > 0 THEN floor(w.memory_mb * part.of_gpus)::integer
            ELSE greatest(
                floor(w.memory_mb * least(1, coalesce(s.cpus / nullif(w.cpus, 0), 0)))::integer,
                least(1024, w.memory_mb)
            )
        END
    FROM (
        SELECT coalesce(
            least(1, s.gpus::double precision / nullif(jsonb_array_length(w.gpus), 0)), 0
        ) * 0.75 AS of_gpus
    ) AS part
$$;
