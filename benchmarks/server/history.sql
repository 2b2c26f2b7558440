-- Jobs that ended months ago: a row in `job` and one in `outcome` each, like those that are there.
WITH kinds AS (
    SELECT lane_id, owner, name, spec, row_number() OVER (ORDER BY id) AS n, count(*) OVER () AS of
    FROM job
),
many AS (
    INSERT INTO job (lane_id, owner, name, spec, submitted_at)
    SELECT
        kinds.lane_id, kinds.owner, kinds.name, kinds.spec,
        clock_timestamp() - interval '180 days' * (1 - k / (%(jobs)s + 1.0))
    FROM generate_series(1, %(jobs)s) AS k
    JOIN kinds ON kinds.n = 1 + k %% kinds.of
    RETURNING id, lane_id, submitted_at
)
INSERT INTO outcome (
    job_id, state, reason, attempt, token, nonce, exit_code, finished_at, worker_id, lane_id,
    ready_at, claimed_at, started_at, devices, gpu_seconds, cost, cpu_seconds, peak_memory_mb
)
SELECT
    id, 'succeeded', 'succeeded', 1, nextval('lease_token'), gen_random_uuid(), 0,
    submitted_at + interval '12 minutes', 1 + id %% %(workers)s, lane_id,
    submitted_at, submitted_at + interval '1 minute', submitted_at + interval '2 minutes', '{}',
    0, 0.01, 500, 2000
FROM many
