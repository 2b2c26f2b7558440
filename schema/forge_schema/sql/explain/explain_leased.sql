-- The resources of each worker that its leases hold: jobs, CPUs, memory and disk in total, and for
-- each job with GPUs what it requested and got. Devices are unknown until the worker reports them.
SELECT
    lease.worker_id, count(*)::integer AS leases, sum(lent.cpus) AS cpus,
    sum(lent.memory_mb) AS memory_mb, sum(shape.disk_mb) AS disk_mb,
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
JOIN worker ON worker.id = lease.worker_id
CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
WHERE lease.over IS NULL
GROUP BY lease.worker_id
