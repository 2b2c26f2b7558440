-- The number of jobs of each lane by state, counted up to a bound, and how long its oldest ready
-- job has waited.
WITH leased AS MATERIALIZED (
    SELECT part.lane_id, count(*)::integer AS leases,
        (count(*) FILTER (WHERE part.rank = 0))::integer AS jobs
    FROM (SELECT lane_id, rank FROM lease LIMIT %(most)s) AS part
    GROUP BY part.lane_id
),
later AS MATERIALIZED (
    SELECT part.lane_id, count(*)::integer AS jobs
    FROM (SELECT lane_id FROM scheduled ORDER BY run_at LIMIT %(most)s) AS part
    GROUP BY part.lane_id
),
kept AS MATERIALIZED (
    SELECT
        part.lane_id, count(*)::integer AS jobs, count(part.approval)::integer AS awaiting_approval
    FROM (SELECT lane_id, approval FROM held LIMIT %(most)s) AS part
    GROUP BY part.lane_id
)
SELECT
    lane.owner, lane.queue, lane.paused, lane.shape_id, shape.accelerator, shape.gpus, shape.gpu_model,
    waiting.jobs AS ready, waiting.oldest_s,
    coalesce(later.jobs, 0) AS scheduled, coalesce(kept.jobs, 0) AS held,
    coalesce(kept.awaiting_approval, 0) AS awaiting_approval,
    coalesce(leased.jobs, 0) AS running,
    coalesce(leased.leases, 0) * shape.gpus AS gpus_used
FROM lane
JOIN shape ON shape.id = lane.shape_id
CROSS JOIN LATERAL (
    SELECT
        count(*)::integer AS jobs,
        greatest(
            0, coalesce(extract(epoch FROM forge_now() - min(head.ready_at)), 0)
        )::double precision AS oldest_s
    FROM (
        SELECT ready.ready_at FROM ready
        WHERE ready.lane_id = lane.id
        ORDER BY ready.nice, ready.job_id
        LIMIT %(most)s
    ) AS head
) AS waiting
LEFT JOIN later ON later.lane_id = lane.id
LEFT JOIN kept ON kept.lane_id = lane.id
LEFT JOIN leased ON leased.lane_id = lane.id
