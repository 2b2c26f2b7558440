-- The jobs of an owner's sweep after an id, each with its parameters, its metrics and its result, and
-- what it took in all attempts. `last_seconds` is the running time of the last one. The energy is
-- null if that of an attempt is not known. The detail says why a job was cancelled.
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
    CASE WHEN runs.seconds > 0 OR runs.finished_at IS NOT NULL THEN runs.seconds END AS seconds,
    extract(EPOCH FROM attempt.finished_at - attempt.started_at)::double precision AS last_seconds,
    runs.gpu_seconds,
    (
        SELECT CASE WHEN bool_and(energy_j IS NOT NULL OR gpu_seconds = 0) THEN sum(energy_j) END
        FROM attempt AS each WHERE each.job_id = runs.job_id
    ) AS energy_j,
    runs.cost
FROM runs
LEFT JOIN attempt
    ON attempt.job_id = runs.job_id AND attempt.attempt = runs.attempt AND attempt.rank = 0
        AND runs.finished_at IS NOT NULL
WHERE runs.owner = %(owner)s AND runs.sweep = %(sweep)s AND runs.job_id > %(after)s
ORDER BY runs.job_id
LIMIT %(count)s
