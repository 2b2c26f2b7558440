-- GPU-hours, and hours of CPU time as measured, by owner, queue and day of the attempts' end; every
-- rank of a gang counts.
CREATE VIEW gpu_hours AS
SELECT
    lane.owner,
    lane.queue,
    (attempt.finished_at AT TIME ZONE 'UTC')::date AS day,
    count(*) FILTER (WHERE attempt.rank = 0) AS attempts,
    sum(attempt.gpu_seconds) / 3600 AS gpu_hours,
    sum(attempt.gpu_seconds * share.useful) / 3600 AS useful_gpu_hours,
    sum(attempt.gpu_seconds * (1 - share.useful)) / 3600 AS wasted_gpu_hours,
    sum(attempt.gpu_seconds * share.useful) / nullif(sum(attempt.gpu_seconds), 0) AS goodput,
    sum(attempt.cpu_seconds) / 3600 AS cpu_hours
FROM attempt
JOIN lane ON lane.id = attempt.lane_id
CROSS JOIN LATERAL (
    SELECT forge_useful(
        attempt.reason, attempt.claimed_at, attempt.checkpoint_at, attempt.finished_at
    ) AS useful
) AS share
GROUP BY lane.owner, lane.queue, (attempt.finished_at AT TIME ZONE 'UTC')::date;
