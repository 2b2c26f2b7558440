-- The energy used by GPUs, by owner, queue and day of the attempts' end. An attempt without a
-- measurement is counted and adds nothing.
CREATE VIEW energy AS
SELECT
    lane.owner,
    lane.queue,
    (attempt.finished_at AT TIME ZONE 'UTC')::date AS day,
    count(*) FILTER (WHERE attempt.rank = 0) AS attempts,
    count(*) FILTER (WHERE attempt.energy_j IS NULL) AS unmeasured,
    sum(attempt.energy_j) / 3600000 AS energy_kwh,
    sum(attempt.energy_j * forge_useful(
        attempt.reason, attempt.claimed_at, attempt.checkpoint_at, attempt.finished_at
    )) / 3600000 AS useful_kwh,
    sum(attempt.gpu_seconds) FILTER (WHERE attempt.energy_j IS NOT NULL) / 3600
        AS measured_gpu_hours,
    sum(attempt.energy_j)
    / nullif(sum(attempt.gpu_seconds) FILTER (WHERE attempt.energy_j IS NOT NULL), 0)
        AS watts_per_gpu
FROM attempt
JOIN lane ON lane.id = attempt.lane_id
GROUP BY lane.owner, lane.queue, (attempt.finished_at AT TIME ZONE 'UTC')::date;
