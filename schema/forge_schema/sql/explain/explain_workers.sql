-- The workers compared with a shape, those that can serve it first: what each has, and which of the
-- requirements it meets, how much an idle one is preferred, and what it keeps room for, if it is
-- drafted for a gang, and how long it leaves the job to others, to spot machines if it `leaves`. Its
-- `offers` are what it had free when it last found no job. `dear` compares the workers as `forge_wake`
-- does. Workers beyond `count` are only counted.
SELECT
    worker.id, worker.name, worker.kind, worker.status, worker.command, worker.accelerator,
    worker.gpus, worker.cpus, worker.memory_mb, worker.disk_mb, worker.labels, worker.local,
    worker.address, worker.price_per_hour, forge_leaves(shape, worker) AS leaves,
    forge_dear(worker.price_per_hour, CASE
        WHEN min(floor(known.speed * 4)) FILTER (WHERE known.serves) OVER ()
            = max(floor(known.speed * 4)) FILTER (WHERE known.serves) OVER ()
            THEN known.speed
    END) AS dear,
    CASE
        WHEN shape.nodes > 1 THEN extract(EPOCH FROM worker.gangs_after - forge_now())::float8
    END AS gangs_after_s,
    shape.nodes > 1 AND NOT forge_is_fresh(worker) AS silent,
    worker.condition ->> 'constrained' AS constrained,
    worker.suspected_for,
    CASE
        WHEN forge_rests(worker) THEN extract(EPOCH FROM worker.rests_until - forge_now())::float8
    END AS rests_s,
    worker.boot_id = '00000000-0000-0000-0000-000000000000' AS never_came,
    extract(EPOCH FROM forge_now() - worker.last_seen_at)::float8 AS silent_s,
    lent.cpus AS lent_cpus, lent.memory_mb AS lent_memory_mb,
    known.last_resort, known.warm,
    forge_preference(known.last_resort, %(parts)s::integer[], known.warm) AS preference,
    known.speed, known.serves AS fits,
    forge_fit_of(shape, worker) AS fit,
    CASE WHEN shape.nodes > 1 THEN (
        SELECT forge_alike(shape, worker, job.spec) FROM job WHERE job.id = %(job_id)s
    ) END AS alike,
    (
        SELECT jsonb_build_object(
            'job_id', draft.job_id, 'nice', draft.nice, 'cpus', kept.cpus,
            'memory_mb', kept.memory_mb, 'disk_mb', wanted.disk_mb, 'gpus', wanted.gpus,
            'gpu_model', wanted.gpu_model, 'vram_mb', wanted.vram_mb,
            'short_s', extract(EPOCH FROM forming.expected_at - forge_now())::float8
        )
        FROM draft
        LEFT JOIN forming ON forming.job_id = draft.job_id
        JOIN lane ON lane.id = draft.lane_id
        JOIN shape AS wanted ON wanted.id = lane.shape_id
        CROSS JOIN LATERAL forge_lent(wanted, worker) AS kept
        WHERE draft.worker_id = worker.id AND draft.until > forge_now()
    ) AS draft,
    (
        SELECT extract(EPOCH FROM ready.ready_at + forge_avoidance() - forge_now())::float8
        FROM job
        JOIN ready
            ON ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
        WHERE job.id = %(job_id)s
            AND (worker.id = ANY(ready.avoids) OR forge_leaves(shape, worker))
    ) AS avoided_s,
    ARRAY(
        SELECT to_jsonb(idle) FROM idle
        WHERE idle.worker_id = worker.id AND idle.boot_id = worker.boot_id
    ) AS offers,
    count(*) OVER ()::integer AS in_all
FROM shape
CROSS JOIN worker
CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
CROSS JOIN LATERAL (
    SELECT
        forge_serves(shape, worker) AS serves,
        forge_speed(worker.speed, shape.gpus > 0) AS speed,
        shape.target = 'auto' AND worker.local AS last_resort,
        coalesce((SELECT warm FROM idle WHERE idle.worker_id = worker.id LIMIT 1), '{}') AS warm
) AS known
WHERE shape.id = %(shape_id)s
    AND (%(worker_id)s::bigint IS NULL OR worker.id = %(worker_id)s)
ORDER BY
    known.serves DESC, worker.command IS NULL DESC, worker.status = 'offline',
    worker.last_seen_at DESC
LIMIT %(count)s
