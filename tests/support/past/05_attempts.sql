-- What became of the past jobs: one attempt after the other, the last one as the outcome says.
CREATE TEMP TABLE run AS
WITH spaced AS (
    SELECT
        past.id AS job_id, past.lane_id, past.state, past.submitted_at, past.tries,
        choice.shape_id, choice.workers, a AS attempt, past.id * 8 + a AS die,
        least(interval '2 hours', (now - past.submitted_at) / (past.tries + 1)) AS gap
    FROM scale
    CROSS JOIN past
    JOIN choice ON choice.lane_id = past.lane_id
    CROSS JOIN LATERAL generate_series(1, past.tries) AS a
),
claimed AS (
    SELECT
        *,
        submitted_at + (attempt - 1) * gap AS ready_at,
        submitted_at + (attempt - 1 + 0.3 * pg_temp.u(die, 51) ^ 3) * gap AS claimed_at
    FROM spaced
)
SELECT
    *,
    floor(pg_temp.u(die, 53) * workers)::bigint AS place,
    claimed_at + (0.05 + 0.6 * pg_temp.u(die, 52) ^ 2) * gap AS finished_at,
    CASE
        WHEN attempt < tries THEN (ARRAY[
            'preempted', 'preempted', 'preempted', 'preempted', 'worker_lost', 'worker_lost',
            'drained', 'exit_code', 'exit_code', 'exit_code', 'oom', 'disk_full', 'stalled',
            'start_failed', 'storage_failed', 'gpu_fault'
        ])[1 + floor(16 * pg_temp.u(die, 54))::integer]
        WHEN state = 'failed' THEN
            (ARRAY['timeout', 'timeout', 'bundle_corrupt', 'image_missing'])[1 + die % 4]
        WHEN state = 'dead' THEN
            (ARRAY['exit_code', 'exit_code', 'oom', 'worker_lost', 'preempted'])[1 + die % 5]
        ELSE state::text
    END::reason AS reason
FROM claimed;

CREATE TEMP TABLE told AS
SELECT
    row_number() OVER (ORDER BY run.finished_at) AS token,
    run.*, able.worker_id, able.price, able.gpus, able.devices,
    extract(EPOCH FROM run.finished_at - run.claimed_at)::float8 AS held_s
FROM run JOIN able ON able.shape_id = run.shape_id AND able.place = run.place;
ANALYZE told;

-- Every attempt as history has it, in the order of the ends.
CREATE TEMP TABLE entry AS
SELECT
    job_id, attempt, 0 AS rank, finished_at, token, pg_temp.nonce(token) AS nonce, worker_id, lane_id, ready_at,
    claimed_at,
    CASE WHEN reason NOT IN ('start_failed', 'image_missing', 'bundle_corrupt')
        THEN claimed_at + least(interval '20 seconds', (finished_at - claimed_at) / 10)
    END AS started_at,
    reason,
    CASE reason WHEN 'succeeded' THEN 0 WHEN 'exit_code' THEN 1 WHEN 'oom' THEN 137 END AS exit_code,
    CASE WHEN reason NOT IN ('succeeded', 'preempted') THEN 'what was the matter' END AS detail,
    devices, gpus * held_s AS gpu_seconds,
    CASE WHEN gpus > 0 THEN gpus * held_s * 320 END AS energy_j, price * held_s / 3600 AS cost,
    held_s * 3 AS cpu_seconds, (2000 + token % 30000)::integer AS peak_memory_mb,
    CASE WHEN gpus > 0 THEN 8000 + token % 60000 END::integer AS peak_vram_mb,
    CASE WHEN token % 3 = 0
        THEN finished_at - (finished_at - claimed_at) / 5
    END AS checkpoint_at
FROM told
ORDER BY token;

INSERT INTO attempt_row (
    job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
    started_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost, cpu_seconds,
    peak_memory_mb, peak_vram_mb, checkpoint_at
)
SELECT * FROM entry WHERE reason <> 'succeeded' ORDER BY token;
SELECT setval('lease_token', (SELECT max(token) FROM told));

-- A success is its attempt too.
INSERT INTO outcome (
    job_id, state, reason, attempt, token, nonce, exit_code, finished_at, worker_id, lane_id,
    ready_at, claimed_at, started_at, checkpoint_at, devices, gpu_seconds, energy_j, cost,
    cpu_seconds, peak_memory_mb, peak_vram_mb
)
SELECT
    past.id, past.state, coalesce(last.reason, 'cancelled'), past.tries, last.token, last.nonce,
    CASE last.reason WHEN 'succeeded' THEN 0 WHEN 'exit_code' THEN 1 END,
    coalesce(last.finished_at, past.submitted_at + (now - past.submitted_at) / 1000) AS finished_at,
    own.worker_id, own.lane_id, own.ready_at, own.claimed_at, own.started_at, own.checkpoint_at,
    own.devices, own.gpu_seconds, own.energy_j, own.cost, own.cpu_seconds, own.peak_memory_mb,
    own.peak_vram_mb
FROM scale
CROSS JOIN past
LEFT JOIN entry AS last ON last.job_id = past.id AND last.attempt = past.tries
LEFT JOIN entry AS own
    ON own.job_id = last.job_id AND own.attempt = last.attempt AND own.reason = 'succeeded'
ORDER BY 8;
