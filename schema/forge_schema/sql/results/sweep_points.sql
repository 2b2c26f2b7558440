-- The jobs of an owner's sweep after an id, each with its parameters, its metrics and its result. What
-- it took is that of the attempt that counts. The detail says why a job was cancelled.
SELECT
    runs.job_id,
    runs.name,
    runs.state,
    runs.reason,
    CASE WHEN runs.state = 'cancelled' THEN (
        SELECT event.detail ->> 'reason' FROM event
        WHERE event.job_id = runs.job_id
            AND event.action IN ('asked to cancel', 'cancelled') AND event.detail ? 'reason'
        ORDER BY event.id
        LIMIT 1
    ) END AS detail,
    runs.parameters,
    runs.metrics,
    runs.result,
    extract(EPOCH FROM attempt.finished_at - attempt.started_at)::double precision AS seconds,
    attempt.gpu_seconds,
    attempt.energy_j
FROM runs
LEFT JOIN attempt
    ON attempt.job_id = runs.job_id AND attempt.attempt = runs.attempt AND attempt.rank = 0
        AND runs.finished_at IS NOT NULL
WHERE runs.owner = %(owner)s AND runs.sweep = %(sweep)s AND runs.job_id > %(after)s
ORDER BY runs.job_id
LIMIT %(count)s
