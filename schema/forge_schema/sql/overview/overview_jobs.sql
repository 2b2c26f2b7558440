-- The running jobs of some owners or of all, the longest-running first: progress, workers by rank, GPUs
-- of all of them, and of rank 0 the newest resource sample and the last metrics by name.
SELECT
    held.job_id, job.name, job.owner, lane.queue, held.attempt, held.job_phase AS phase, held.progress,
    held.asked, held.worker_id, worker.name AS worker, held.nodes,
    shape.gpus * held.nodes AS gpus,
    CASE
        WHEN held.nodes > 1 THEN ARRAY(
            SELECT coalesce(its.name, member.worker_id::text)
            FROM lease AS member LEFT JOIN worker AS its ON its.id = member.worker_id
            WHERE member.job_id = held.job_id
            ORDER BY member.rank
        )
        ELSE array_remove(ARRAY[worker.name], NULL)
    END AS workers,
    extract(EPOCH FROM forge_now() - held.claimed_at)::double precision AS elapsed_s,
    looked.values AS used, coalesce(said.values, '{}') AS metrics
FROM (
    SELECT lease.*, forge_phase(lease) AS job_phase
    FROM lease
    WHERE lease.rank = 0
        AND (
            %(scope)s::text[] IS NULL
            OR lease.lane_id IN (SELECT id FROM lane WHERE lane.owner = ANY(%(scope)s::text[]))
        )
    ORDER BY lease.claimed_at, lease.job_id
    LIMIT %(count)s
) AS held
JOIN job ON job.id = held.job_id
JOIN lane ON lane.id = held.lane_id
JOIN shape ON shape.id = lane.shape_id
LEFT JOIN worker ON worker.id = held.worker_id
LEFT JOIN LATERAL (
    SELECT sample.values
    FROM sample
    WHERE sample.job_id = held.job_id AND sample.token = held.token AND sample.rank = held.rank
        AND sample.at >= held.claimed_at
    ORDER BY sample.number DESC
    LIMIT 1
) AS looked ON true
LEFT JOIN LATERAL (
    -- A job may write anything, so only a few short names with numbers are shown.
    SELECT jsonb_object_agg(few.key, few.value) AS values
    FROM (
        SELECT DISTINCT ON (length(pair.key), pair.key) pair.key, pair.value
        FROM (
            SELECT metric.number, metric.values
            FROM metric
            WHERE metric.job_id = held.job_id AND metric.token = held.token
                AND metric.rank = held.rank AND metric.at >= held.claimed_at
            ORDER BY metric.number DESC
            LIMIT 5
        ) AS line
        CROSS JOIN LATERAL jsonb_each(line.values) AS pair
        WHERE jsonb_typeof(pair.value) = 'number' AND length(pair.key) <= 40
        ORDER BY length(pair.key), pair.key, line.number DESC
        LIMIT 16
    ) AS few
) AS said ON true
ORDER BY held.claimed_at, held.job_id
