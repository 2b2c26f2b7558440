-- Whether an idle worker has what a shape wants of each machine.
CREATE OR REPLACE FUNCTION forge_meets(s shape, w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.cpus <= w.cpus
    AND s.memory_mb <= w.memory_mb
    AND s.disk_mb <= w.disk_mb
    AND (s.target = 'auto' OR (s.target = 'local') = w.local)
    AND (s.accelerator = 'any' OR s.accelerator = w.accelerator)
    AND (s.gpus = 0 OR s.gpus <= forge_gpus_match(w.gpus, s.gpu_model, s.vram_mb))
    AND forge_labels_match(s.labels, w.labels)
    AND forge_affords(s.labels, w.price_per_hour)
$$;
