-- What each worker's leases hold of it: jobs, CPUs, memory and disk in all, and of those with GPUs
-- what each asked for and was given; no devices are known before the worker has told them.
SELECT
    lease.worker_id, count(*)::integer AS leases, sum(shape.cpus) AS cpus,
    sum(shape.memory_mb) AS memory_mb, sum(shape.disk_mb) AS disk_mb,
    coalesce(
        jsonb_agg(jsonb_build_object(
            'gpus', shape.gpus, 'gpu_model', shape.gpu_model, 'vram_mb', shape.vram_mb,
            'devices', to_jsonb(lease.devices)
        )) FILTER (WHERE shape.gpus > 0),
        '[]'::jsonb
    ) AS gpus
FROM lease
JOIN lane ON lane.id = lease.lane_id
JOIN shape ON shape.id = lane.shape_id
GROUP BY lease.worker_id
