-- The number of waiting and running jobs of some owners or of all, of those that wait for approval,
-- and the GPUs in use.
WITH mine AS MATERIALIZED (
    SELECT lane.id, shape.gpus
    FROM lane
    JOIN shape ON shape.id = lane.shape_id
    WHERE %(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[])
),
leased AS MATERIALIZED (
    SELECT
        count(*) FILTER (WHERE lease.rank = 0)::integer AS jobs,
        coalesce(sum(mine.gpus) FILTER (WHERE lease.over IS NULL), 0)::integer AS gpus
    FROM lease
    JOIN mine ON mine.id = lease.lane_id
)
SELECT
    forge_now() AS at,
    (
        SELECT count(*)::integer FROM scheduled JOIN mine ON mine.id = scheduled.lane_id
    ) AS scheduled,
    (SELECT count(*)::integer FROM held JOIN mine ON mine.id = held.lane_id) AS held,
    (
        SELECT count(*)::integer FROM held JOIN mine ON mine.id = held.lane_id
        WHERE held.approval IS NOT NULL
    ) AS awaiting_approval,
    (SELECT count(*)::integer FROM ready JOIN mine ON mine.id = ready.lane_id) AS ready,
    leased.jobs AS running,
    leased.gpus AS gpus_busy
FROM leased
