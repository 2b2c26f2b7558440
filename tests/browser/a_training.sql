-- The running job with the most GPUs told a lot about itself, and so did its GPUs.
SET session_replication_role = replica;
CREATE TEMP TABLE shown AS
SELECT job_id, token, rank, attempt, claimed_at AS since, forge_now() - claimed_at AS lasted, devices
FROM lease
ORDER BY cardinality(devices) DESC, job_id LIMIT 1;
DELETE FROM metric USING shown WHERE metric.job_id = shown.job_id;
DELETE FROM sample USING shown WHERE sample.job_id = shown.job_id;
DELETE FROM log_chunk USING shown WHERE log_chunk.job_id = shown.job_id;
UPDATE job SET name = 'finetune-7b' FROM shown WHERE job.id = shown.job_id;
SELECT setseed(0.5);

INSERT INTO metric (job_id, token, rank, number, at, attempt, step, values)
SELECT
    job_id, token, rank, n, since + lasted * n / 400, attempt, n * 25,
    jsonb_build_object(
        'step', n * 25, 'total', 16000,
        'loss', round((1.1 + 2.4 * exp(-n / 60.0) + 0.12 * (random() - 0.5))::numeric, 4),
        'lr', round((3e-4 * least(n / 30.0, 0.5 + 0.5 * cos(pi() * n / 640)))::numeric, 7),
        'tokens_per_second', round((11800 + 160 * (random() + random() - 1))::numeric)
    )
FROM shown, generate_series(0, 399) AS n;

INSERT INTO sample (job_id, token, rank, number, at, attempt, values)
SELECT
    job_id, token, rank, n, since + lasted * n / 300, attempt,
    jsonb_build_object(
        'cpu_seconds', n * 88.0, 'memory_mb', 61000 + round(4000 * random()),
        'gpus', (
            SELECT jsonb_object_agg(uuid, jsonb_build_object(
                'utilisation', CASE WHEN n % 75 < 4 THEN round(20 * random()) ELSE 94 + round(5 * random()) END,
                'memory_mb', 68000 + 300 * nth, 'power_w', 388 + round(6 * random()) - 8 * nth,
                'temperature_c', 62 + nth + round((2 * sin(n / 25.0 + nth))::numeric, 1)
            ))
            FROM unnest(devices) WITH ORDINALITY AS device (uuid, nth)
        )
    )
FROM shown, generate_series(0, 299) AS n;
UPDATE lease SET metrics = 400, samples = 300, progress = 0.62, phase = 'running',
    started_at = shown.since + interval '9 seconds'
FROM shown
WHERE lease.job_id = shown.job_id;
