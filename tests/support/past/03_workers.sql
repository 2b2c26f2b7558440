-- 500 workers and 20 more that ran jobs and are gone in the end: machines with and without GPUs,
-- a few of them offline, draining or past their limits.
CREATE TEMP TABLE machine AS
SELECT n, model.*
FROM generate_series(1, 520) AS n
JOIN (VALUES
    (0, 'cpu', 'cpu', 0, '', 0, 64, 262144, 1.2),
    (1, 'l4', 'cuda', 4, 'NVIDIA L4', 23034, 48, 196608, 3.0),
    (2, 'a100', 'cuda', 8, 'NVIDIA A100-SXM4-80GB', 81920, 96, 1048576, 18.0),
    (3, 'h100', 'cuda', 8, 'NVIDIA H100 80GB HBM3', 81559, 192, 2097152, 41.5),
    (4, 'mi300x', 'rocm', 8, 'AMD Instinct MI300X', 196592, 192, 2097152, 33.0)
) AS model (kind, name, accelerator, gpus, gpu, vram_mb, cpus, memory_mb, price)
    ON model.kind = (ARRAY[0, 1, 2, 2, 3, 3, 1, 2, 0, 4])[1 + n % 10];

INSERT INTO worker (
    id, name, boot_id, kind, status, accelerator, gpus, cpus, memory_mb, disk_mb, labels,
    price_per_hour, version, token_hash, condition, command, registered_at, connected_at,
    last_seen_at
)
SELECT
    n,
    format('%s-%s', name, lpad(n::text, 3, '0')),
    gen_random_uuid(),
    CASE WHEN n % 7 = 0 OR n > 500 THEN 'ephemeral' ELSE 'persistent' END::worker_kind,
    CASE
        WHEN n % 17 = 0 OR n > 500 THEN 'offline'
        WHEN n % 50 = 3 THEN 'draining'
        WHEN n % 100 = 8 THEN 'constrained'
        ELSE 'idle'
    END::worker_status,
    accelerator,
    coalesce((
        SELECT jsonb_agg(jsonb_build_object(
            'uuid', format('GPU-%s-%s', lpad(n::text, 8, '0'), g), 'name', gpu, 'vram_mb', vram_mb,
            'vendor', CASE accelerator WHEN 'cuda' THEN 'nvidia' ELSE 'amd' END, 'driver', '580.65',
            'capability', '', 'parent', NULL
        ) ORDER BY g)
        FROM generate_series(0, gpus - 1) AS g
    ), '[]'),
    cpus, memory_mb, 4194304,
    jsonb_build_object(
        'forge.runs', 'images,projects', 'zone', pg_temp.pick(ARRAY['a', 'b', 'c'], pg_temp.u(n, 21)),
        'site', CASE WHEN n % 3 = 0 THEN 'mumbai' ELSE 'frankfurt' END
    ),
    price, '0.9.0', sha256(n::text::bytea),
    CASE WHEN n % 100 = 8 THEN '{"constrained": "memory 93 percent"}' ELSE '{}' END::jsonb,
    CASE WHEN n % 50 = 3 THEN 'drain' END::command,
    now - interval '200 days',
    now - interval '180 days',
    now - CASE
        WHEN n % 17 = 0 OR n > 500 THEN interval '2 hours'
        ELSE make_interval(secs => 30 * pg_temp.u(n, 22))
    END
FROM machine, scale;
SELECT setval(pg_get_serial_sequence('worker', 'id'), 520);

-- Who can serve which shape, numbered, so that each attempt draws one of them.
CREATE TEMP TABLE able AS
SELECT
    shape.id AS shape_id, worker.id AS worker_id, worker.price_per_hour AS price, shape.gpus,
    row_number() OVER (PARTITION BY shape.id ORDER BY worker.id) - 1 AS place,
    ARRAY(
        SELECT gpu ->> 'uuid'
        FROM jsonb_array_elements(worker.gpus) WITH ORDINALITY AS g (gpu, nth)
        WHERE nth <= shape.gpus ORDER BY nth
    ) AS devices
FROM shape JOIN worker ON forge_fits(shape, worker);
CREATE TEMP TABLE choice AS
SELECT lane.id AS lane_id, lane.shape_id, count(*) AS workers
FROM lane JOIN able USING (shape_id) GROUP BY lane.id;
ANALYZE machine, able, choice;

-- Spot machines that came and went, two hundred of each name.
INSERT INTO former_worker (id, name)
SELECT 1000000 + n, format('gone-%s', n % 100) FROM generate_series(1, 20000) AS n;
