-- How many of a worker's GPUs a job can get: the largest number of one kind (name and memory) that
-- match a model and have enough memory.
CREATE OR REPLACE FUNCTION forge_gpus_match(gpus jsonb, model text, vram_mb integer) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(max(kind.gpus), 0) FROM (
        SELECT count(*) AS gpus FROM jsonb_array_elements(gpus) AS g (gpu)
        WHERE forge_is_model(model, gpu ->> 'name')
        AND (gpu ->> 'vram_mb')::integer >= vram_mb
        GROUP BY gpu ->> 'name', gpu ->> 'vram_mb'
    ) AS kind
$$;
