-- One job: its state, its request, the checkpoint of another job that it started from, the jobs that
-- it waits for, the time until it may start, how many retries after failures are left (null once it
-- has ended), the members of its run while it runs on several machines, the age of its newest
-- checkpoint, how long its current or last attempt has run, and what it has cost.
SELECT
    job_status.*,
    CASE WHEN job_status.state = 'ready' THEN forge_kept(job_status.job_id) ELSE 0 END AS kept,
    job.spec, job.timeout_s, job.max_failures, job.max_losses, job.max_preemptions,
    forge_team(job_status.owner) AS team, job.source_job_id, job.source_number, job.idempotency_key,
    greatest(extract(EPOCH FROM job_status.run_at - forge_now()), 0)::float8 AS due_in_s,
    job.max_failures - coalesce(
        (SELECT failures FROM lease WHERE lease.job_id = job.id AND lease.rank = 0),
        (SELECT failures FROM scheduled WHERE scheduled.job_id = job.id),
        (
            SELECT failures FROM ready
            WHERE ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
        ),
        (SELECT 0 FROM held WHERE held.job_id = job.id)
    ) AS retries_left,
    ARRAY(
        SELECT jsonb_build_object('job_id', needs_id, 'kind', kind, 'met', met)
        FROM dependency WHERE dependency.job_id = job.id
        ORDER BY needs_id
    ) AS dependencies,
    ARRAY(
        SELECT jsonb_build_object(
            'rank', lease.rank, 'worker', worker.name, 'phase', lease.phase, 'step', lease.step,
            'reason', lease.over -> 'reason', 'exit_code', lease.over -> 'exit_code'
        )
        FROM lease LEFT JOIN worker ON worker.id = lease.worker_id
        WHERE lease.job_id = job.id AND lease.nodes > 1
        ORDER BY lease.rank
    ) AS members,
    (
        SELECT attempt FROM checkpoint
        WHERE job_id = job.source_job_id AND token = job.source_token
        LIMIT 1
    ) AS source_attempt,
    (
        SELECT extract(EPOCH FROM forge_now() - max(kept.created_at))::float8
        FROM forge_complete_checkpoints(job.id) AS kept
    ) AS saved_s,
    CASE
        WHEN job_status.finished_at IS NULL
            THEN extract(EPOCH FROM forge_now() - job_status.started_at)
        ELSE (
            SELECT extract(
                EPOCH FROM max(
                    attempt.finished_at - coalesce(attempt.started_at, attempt.claimed_at)
                )
            )
            FROM attempt
            WHERE attempt.job_id = job.id AND attempt.attempt = job_status.attempt
        )
    END::float8 AS ran_s,
    forge_job_cost(job.id) AS cost
FROM job_status JOIN job ON job.id = job_status.job_id
WHERE job_status.job_id = %(job_id)s
