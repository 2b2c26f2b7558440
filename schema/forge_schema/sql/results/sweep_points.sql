-- Jobs of an owner's sweep after an id, and each task of those that made many: each with its parameters, its metrics and its result, and
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
    CASE
        WHEN runs.task IS NOT NULL THEN runs.seconds
        ELSE extract(EPOCH FROM attempt.finished_at - attempt.started_at)::double precision
    END AS last_seconds,
    runs.gpu_seconds,
    -- That of a task is not known.
    CASE WHEN runs.task IS NULL THEN (
        SELECT CASE WHEN bool_and(energy_j IS NOT NULL OR gpu_seconds = 0) THEN sum(energy_j) END
        FROM attempt AS each WHERE each.job_id = runs.job_id
    ) END AS energy_j,
    runs.cost,
    runs.task
FROM runs
LEFT JOIN attempt
    ON attempt.job_id = runs.job_id AND attempt.attempt = runs.attempt AND attempt.rank = 0
        AND runs.finished_at IS NOT NULL
-- A page never divides a job.
WHERE runs.job_id = ANY(ARRAY(
    SELECT id FROM job
    WHERE owner = %(owner)s AND sweep = %(sweep)s AND id > %(after)s
    ORDER BY id
    LIMIT %(count)s
))
ORDER BY runs.job_id, runs.task
