-- Which requirements of a shape an idle worker meets, one by one. `forge_serves` is true exactly if
-- all of them are met. Each of the three about GPUs includes the previous ones.
CREATE OR REPLACE FUNCTION forge_fit_of(s shape, w worker) RETURNS jsonb
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT jsonb_build_object(
        'address', s.nodes = 1 OR w.address IS NOT NULL,
        'cpus', s.cpus <= w.cpus,
        'memory_mb', s.memory_mb <= w.memory_mb,
        'disk_mb', s.disk_mb <= w.disk_mb,
        'target', s.target = 'auto' OR (s.target = 'local') = w.local,
        'accelerator', s.accelerator = 'any' OR s.accelerator = w.accelerator,
        'gpus', s.gpus = 0 OR s.gpus <= forge_gpus_match(w.gpus, '*', 0),
        'gpu_model', s.gpus = 0 OR s.gpus <= forge_gpus_match(w.gpus, s.gpu_model, 0),
        'vram_mb', s.gpus = 0 OR s.gpus <= forge_gpus_match(w.gpus, s.gpu_model, s.vram_mb)
    ) || coalesce(
        (
            SELECT jsonb_object_agg(
                'label:' || wanted.name,
                forge_labels_match(jsonb_build_object(wanted.name, wanted.pattern), w.labels)
                AND (wanted.name <> 'forge.max_price' OR forge_affords(s.labels, w.price_per_hour))
            )
            FROM jsonb_each_text(s.labels) AS wanted (name, pattern)
        ),
        '{}'::jsonb
    )
$$;
