-- The memory that a job of a shape would have on a worker, in MiB: that of a GPU, or the machine's if
-- the job ran out of that.
CREATE OR REPLACE FUNCTION forge_memory(s shape, w worker, why reason) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN why = 'oom' THEN (SELECT memory_mb FROM forge_lent(s, w))
        ELSE (
            SELECT max((gpu ->> 'vram_mb')::bigint)
            FROM jsonb_array_elements(w.gpus) AS gpu
            WHERE forge_gpus_match(jsonb_build_array(gpu), s.gpu_model, 0) > 0
        )
    END
$$;
