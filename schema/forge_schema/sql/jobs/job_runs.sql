-- The newest attempts of a job, including running ones, each with its times and with the checkpoint
-- that it resumed from: as its worker reported, or else the newest of an earlier attempt, unless that was
-- thinned out since or is passed over. A member of a run that is over is listed as ended while the
-- others go on.
SELECT
    run.*, coalesce(worker.name, former_worker.name) AS worker, forge_now() AS now,
    CASE WHEN kept.passed_over IS NULL OR begun.attempt IS NOT NULL THEN earlier.left_at END AS left_at,
    CASE
        WHEN begun.attempt IS NOT NULL THEN begun.from_attempt
        WHEN kept.passed_over IS NULL THEN kept.attempt
    END AS from_attempt,
    CASE
        WHEN begun.attempt IS NOT NULL THEN begun.from_number
        WHEN kept.passed_over IS NULL THEN kept.number
    END AS from_number
FROM (
    (
        SELECT
            attempt, rank, token, worker_id, ready_at, claimed_at, started_at, checkpoint_at,
            finished_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost,
            cpu_seconds, peak_memory_mb, peak_vram_mb, NULL::phase AS phase,
            NULL::smallint AS step
        FROM attempt
        WHERE job_id = %(job_id)s
        ORDER BY attempt DESC, rank DESC
        LIMIT %(count)s
    )
    UNION ALL
    SELECT
        attempt, rank, token, worker_id, ready_at, claimed_at, started_at, NULL,
        (over ->> 'at')::timestamptz, (over ->> 'reason')::reason,
        (over ->> 'exit_code')::integer, over ->> 'detail', devices, NULL, NULL, NULL, NULL, NULL,
        NULL, phase, step
    FROM lease
    WHERE job_id = %(job_id)s
) AS run
LEFT JOIN worker ON worker.id = run.worker_id
LEFT JOIN former_worker ON former_worker.id = run.worker_id
CROSS JOIN LATERAL (
    SELECT max(attempt.checkpoint_at) AS left_at
    FROM attempt
    WHERE attempt.job_id = %(job_id)s AND attempt.attempt < run.attempt
) AS earlier
LEFT JOIN beginning AS begun ON begun.job_id = %(job_id)s AND begun.attempt = run.attempt
LEFT JOIN LATERAL (
    SELECT checkpoint.attempt, checkpoint.number, checkpoint.passed_over
    FROM checkpoint
    WHERE checkpoint.job_id = %(job_id)s AND checkpoint.attempt < run.attempt
        AND checkpoint.created_at = earlier.left_at AND checkpoint.rank = 0
    ORDER BY checkpoint.token DESC, checkpoint.number DESC
    LIMIT 1
) AS kept ON true
ORDER BY run.attempt, run.rank
