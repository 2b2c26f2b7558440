-- What every fiftieth job and each running one wrote; one of them a lot.
CREATE TEMP TABLE wrote AS
SELECT
    job_id, token, attempt, claimed_at AS since, finished_at - claimed_at AS lasted, devices,
    CASE WHEN job_id = (SELECT max(job_id) FROM told WHERE job_id % 50 = 0) THEN attempts / 50
        ELSE 5 + token % 10 END AS pieces
FROM told, scale WHERE job_id % 50 = 0
UNION ALL
SELECT job_id, token, attempt, claimed_at, now - claimed_at, devices, 20 FROM lease, scale
-- As it comes in life; a summary of page ranges finds a time only so.
ORDER BY since;
ANALYZE wrote;

INSERT INTO log_chunk (
    job_id, token, rank, number, attempt, key, start, bytes, sha256, created_at
)
SELECT
    job_id, token, 0, n, attempt,
    format('jobs/%s/%s-%s/logs/%s.zst', job_id, attempt, token, lpad(n::text, 8, '0')),
    n * 4096, 4096, repeat(md5(n::text), 2), since + lasted * n / pieces
FROM wrote CROSS JOIN LATERAL generate_series(0, pieces - 1) AS n;

INSERT INTO metric (job_id, token, rank, number, at, attempt, step, values)
SELECT
    job_id, token, 0, n, since + lasted * n / pieces, attempt, n * 10,
    jsonb_build_object('loss', 3 / (1 + n * 0.1), 'lr', 0.001)
FROM wrote CROSS JOIN LATERAL generate_series(0, pieces - 1) AS n;

INSERT INTO metric_span (job_id, token, rank, span, lines, at, step, values)
SELECT
    job_id, token, 0, span, pieces, since + lasted, pieces * 10,
    jsonb_build_object('loss', ARRAY[pieces, 3 / (1 + pieces * 0.1), 3, 3, 3 / (1 + pieces * 0.1)])
FROM wrote CROSS JOIN LATERAL generate_series(-1, (pieces - 1) / 100) AS span;

INSERT INTO sample (job_id, token, rank, number, at, attempt, values)
SELECT
    job_id, token, 0, n, since + lasted * n / pieces, attempt,
    jsonb_build_object('cpu_seconds', n * 9.5, 'memory_mb', 2000 + n % 500)
    || CASE WHEN devices = '{}' THEN '{}' ELSE jsonb_build_object('gpus', jsonb_build_object(
        devices[1], '{"utilisation": 87, "memory_mb": 41000, "power_w": 310, "temperature_c": 61}'::jsonb
    )) END
FROM wrote CROSS JOIN LATERAL generate_series(0, pieces - 1) AS n;
UPDATE lease SET metrics = 20, samples = 20;

INSERT INTO checkpoint (job_id, token, number, attempt, key, files, bytes, created_at)
SELECT
    job_id, token, n, attempt,
    format('jobs/%s/%s-%s/checkpoints/%s.json', job_id, attempt, token, lpad(n::text, 6, '0')),
    3, 1000000000, since + lasted * n / 4
FROM wrote CROSS JOIN LATERAL generate_series(0, 2) AS n;

INSERT INTO artifact (job_id, token, path, attempt, key, bytes, sha256, created_at)
SELECT
    job_id, token, path, attempt,
    format('jobs/%s/%s-%s/artifacts/%s', job_id, attempt, token, path), 123456,
    repeat(md5(path), 2), since + lasted
FROM wrote CROSS JOIN unnest(ARRAY['model.safetensors', 'report.json']) AS path;

INSERT INTO result (job_id, token, attempt, values, created_at)
SELECT job_id, token, attempt, jsonb_build_object('accuracy', pg_temp.u(job_id, 81)), since + lasted
FROM wrote;

INSERT INTO test_result (
    job_id, token, number, attempt, suite, name, verdict, seconds, created_at
)
SELECT
    job_id, token, n, attempt, 'suite', 'test_' || n,
    CASE WHEN n % 9 = 8 THEN 'failed' ELSE 'passed' END::verdict, n * 0.1, since + lasted
FROM wrote CROSS JOIN generate_series(0, 19) AS n
WHERE job_id % 100 = 0;
