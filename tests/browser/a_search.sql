-- Fourteen jobs of the past were runs of one experiment, each of which told how it learned.
SET session_replication_role = replica;
CREATE TEMP TABLE tried AS
SELECT
    outcome.job_id, outcome.token, outcome.attempt, outcome.claimed_at AS since,
    outcome.finished_at - outcome.claimed_at AS lasted, place,
    (ARRAY[0.3, 0.1, 0.03, 0.01])[1 + place % 4] AS lr,
    (ARRAY[64, 128, 256])[1 + place % 3] AS batch,
    (ARRAY['none', 'mixup'])[1 + place / 7] AS augment
FROM (
    SELECT *, row_number() OVER (ORDER BY job_id DESC)::integer - 1 AS place
    FROM outcome WHERE state = 'succeeded' AND started_at IS NOT NULL
    ORDER BY job_id DESC LIMIT 14
) AS outcome;
-- Lists leave out what is archived.
DELETE FROM annotation USING tried WHERE annotation.job_id = tried.job_id;
DELETE FROM metric USING tried WHERE metric.job_id = tried.job_id;
DELETE FROM result USING tried WHERE result.job_id = tried.job_id;
DELETE FROM metric_span USING tried WHERE metric_span.job_id = tried.job_id;
UPDATE job SET
    name = format('resnet50 lr=%s batch=%s', lr, batch), experiment = 'resnet50', owner = 'ann',
    spec = spec || jsonb_build_object(
        'parameters', jsonb_build_object('lr', lr, 'batch', batch, 'augment', augment, 'epochs', 90),
        'git', jsonb_build_object(
            'revision', md5((place / 5)::text) || '00112233', 'branch', 'main', 'dirty', place % 6 = 1
        )
    )
FROM tried WHERE job.id = tried.job_id;
UPDATE job SET experiment = 'finetune-7b' WHERE experiment IS NOT NULL AND name LIKE 'finetune%';
UPDATE job SET experiment = NULL WHERE experiment LIKE 'vision-%';
SELECT setseed(0.25);

INSERT INTO metric (job_id, token, rank, number, at, attempt, step, values)
SELECT
    job_id, token, 0, n, since + lasted * n / 150, attempt, n * 100,
    jsonb_build_object(
        'step', n * 100,
        'loss', round((
            0.35 + abs(log(lr::numeric) + 1.3) * 0.5 + 6.2 * exp(-n / (18.0 + place))
            + 0.1 * (random() - 0.5)
        )::numeric, 4),
        'top1', round((
            0.79 - abs(log(lr::numeric) + 1.3) * 0.05 - 0.74 * exp(-n / (25.0 + place))
            + 0.01 * (random() - 0.5)
        )::numeric, 4)
    )
FROM tried, generate_series(0, 149) AS n;

INSERT INTO metric_span (job_id, token, rank, span, lines, at, step, values)
SELECT
    job_id, token, 0, -1, 150, max(at), 14900,
    jsonb_build_object(
        'loss', jsonb_build_array(
            150, min((values -> 'loss')::float8), max((values -> 'loss')::float8), 1,
            (array_agg(values -> 'loss' ORDER BY number DESC))[1]
        ),
        'top1', jsonb_build_array(
            150, min((values -> 'top1')::float8), max((values -> 'top1')::float8), 1,
            (array_agg(values -> 'top1' ORDER BY number DESC))[1]
        )
    )
FROM metric JOIN tried USING (job_id, token)
GROUP BY job_id, token;

INSERT INTO result (job_id, token, attempt, values, created_at)
SELECT job_id, token, attempt, jsonb_build_object('images_per_s', 1900 + 37 * place), since + lasted
FROM tried;
