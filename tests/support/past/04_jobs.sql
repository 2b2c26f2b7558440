-- The jobs that have ended, in `past`, and those that have not, in `present`: their ids are the
-- newest ones and, for the few that nobody could ever serve, every thousandth of the others.
CREATE TEMP TABLE past AS
SELECT
    k + (k - 1) / 999 AS id,
    drawn.lane_id,
    drawn.state,
    now - (1 - k / (jobs + 1.0)) * interval '180 days' AS submitted_at,
    CASE
        WHEN drawn.state = 'cancelled' AND k % 2 = 0 THEN 0
        WHEN pg_temp.u(k, 33) < 0.78 THEN 1
        WHEN pg_temp.u(k, 33) < 0.90 THEN 2
        WHEN pg_temp.u(k, 33) < 0.95 THEN 3
        WHEN pg_temp.u(k, 33) < 0.98 THEN 4
        ELSE 6
    END AS tries
FROM scale
CROSS JOIN LATERAL generate_series(1, jobs) AS k
CROSS JOIN LATERAL (
    SELECT
        CASE
            WHEN k % 5000 = 7 AND k * 4 < jobs THEN 20 + 20 * (k / 5000 % 10)::integer
            ELSE pg_temp.some_lane(k)
        END AS lane_id,
        CASE
            WHEN pg_temp.u(k, 31) < 0.93 OR k % 5000 = 7 THEN 'succeeded'
            WHEN pg_temp.u(k, 31) < 0.97 THEN 'failed'
            WHEN pg_temp.u(k, 31) < 0.99 THEN 'cancelled'
            ELSE 'dead'
        END::state AS state
) AS drawn;

CREATE TEMP TABLE present AS
SELECT
    CASE
        WHEN n <= least(50, jobs / 1000) THEN 1000 * n
        ELSE (SELECT max(id) FROM past) + n
    END AS id,
    n,
    CASE WHEN n <= ready THEN 'ready' WHEN n <= ready + leases THEN 'lease' ELSE 'scheduled' END
        AS place,
    pg_temp.some_lane(-n) AS lane_id,
    (ARRAY[0, 0, 0, -10, 10])[1 + n % 5]::smallint AS nice
FROM scale CROSS JOIN LATERAL generate_series(1, ready + leases + later) AS n;

INSERT INTO job (
    id, lane_id, owner, name, nice, spec, bundle_digest, idempotency_key, content_digest,
    timeout_s, submitted_at, submitted_by, kind, sweep, experiment
)
SELECT
    j.id, j.lane_id, lane.owner,
    pg_temp.pick(
        ARRAY['train-resnet', 'finetune-7b', 'eval', 'tokenize', 'sweep-lr', 'export'],
        pg_temp.u(j.id, 41)
    ) || '-' || j.id % 100,
    j.nice, specs.spec,
    md5((j.id % 5000)::text) || md5((j.id % 5000)::text),
    CASE WHEN j.id % 3 = 0 THEN 'run-' || j.id END,
    CASE WHEN j.id % 3 = 0 THEN md5(j.id::text) || md5(j.id::text) END,
    CASE WHEN j.id % 4 = 0 THEN 86400 END,
    j.submitted_at,
    'user:' || lane.owner,
    CASE WHEN j.id % 20 = 0 THEN 'test' WHEN j.id % 20 = 1 THEN 'benchmark' ELSE 'command' END
        ::job_kind,
    CASE WHEN j.id % 50 < 5 THEN 'grid-' || j.id / 10000 END,
    CASE WHEN j.id % 2 = 0 THEN 'vision-' || j.id / 2000 END
FROM (
    SELECT id, lane_id, 0::smallint AS nice, submitted_at FROM past
    UNION ALL
    SELECT id, lane_id, nice, now - (CASE
        WHEN id = 1000 * n THEN (1 - id / (jobs * 1.1 + 1)) * interval '180 days'
        ELSE (1 - n / (ready + leases + later + 1.0)) * interval '3 hours'
    END)
    FROM present, scale
) AS j
JOIN lane ON lane.id = j.lane_id
JOIN specs ON specs.shape_id = lane.shape_id
ORDER BY j.id;
SELECT setval(pg_get_serial_sequence('job', 'id'), (SELECT max(id) FROM job));
