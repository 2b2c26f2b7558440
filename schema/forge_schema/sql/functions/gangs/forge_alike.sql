-- What all machines of a gang have in common: the value of the label `same` of the job's request, and
-- the model of GPU, unless it may be `mixed`. Of a worker with several models, the one that it has most
-- of counts.
CREATE OR REPLACE FUNCTION forge_alike(shape shape, worker worker, spec jsonb) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT concat_ws(
        ' ', worker.labels ->> (spec ->> 'same'),
        CASE WHEN shape.gpus > 0 AND NOT coalesce((spec ->> 'mixed')::boolean, false) THEN (
            SELECT gpu ->> 'name' FROM jsonb_array_elements(worker.gpus) AS g (gpu)
            WHERE forge_is_model(shape.gpu_model, gpu ->> 'name')
            AND (gpu ->> 'vram_mb')::integer >= shape.vram_mb
            GROUP BY gpu ->> 'name'
            ORDER BY count(*) DESC, gpu ->> 'name'
            LIMIT 1
        ) END
    )
$$;
