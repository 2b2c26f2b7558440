-- Who did what and when: every action, every submit, and the start and end of every attempt.
CREATE VIEW audit AS
SELECT at, actor, action, job_id, worker_id, token, detail
FROM event
UNION ALL
SELECT submitted_at, submitted_by, 'submitted', id, NULL, NULL, NULL
FROM job
WHERE submitted_by IS NOT NULL
UNION ALL
SELECT
    claimed_at, 'worker:' || worker_id, 'dispatched', job_id, worker_id, token,
    jsonb_build_object('attempt', attempt, 'rank', rank)
FROM attempt
UNION ALL
SELECT
    claimed_at, 'worker:' || worker_id, 'dispatched', job_id, worker_id, token,
    jsonb_build_object('attempt', attempt, 'rank', rank)
FROM lease
UNION ALL
SELECT
    finished_at,
    -- See `Tick.requeue`.
    CASE
        WHEN reason = 'worker_lost' AND detail = 'the lease ran out' THEN 'sweeper'
        ELSE 'worker:' || worker_id
    END,
    'ended', job_id, worker_id, token,
    jsonb_build_object(
        'attempt', attempt, 'rank', rank, 'reason', reason, 'exit_code', exit_code
    )
FROM attempt;
