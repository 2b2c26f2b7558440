-- Finds or creates the lane of a shape, queue and owner, and the rows it refers to.
-- Locks, in this order: queue, owner_quota, shape, lane; so concurrent changes of settings are
-- seen. No key is set where it need not be: that would lock out the foreign keys that refer to it.
WITH q AS (
    -- While the queue `*` is paused, new ones begin so.
    INSERT INTO queue (name, paused)
    SELECT %(queue)s, EXISTS (SELECT FROM queue WHERE name = '*' AND paused)
    ON CONFLICT (name) DO UPDATE SET paused = queue.paused
    RETURNING name, paused, num_nonnulls(max_jobs, max_gpus) > 0 AS limited
),
o AS (
    INSERT INTO owner_quota (owner) VALUES (%(owner)s)
    ON CONFLICT (owner) DO UPDATE SET paused = owner_quota.paused
    RETURNING owner, paused, team, num_nonnulls(max_jobs, max_gpus) > 0 AS limited
),
s AS (
    INSERT INTO shape (
        accelerator, gpus, gpu_model, vram_mb, cpus, memory_mb, disk_mb, labels, nodes, target
    )
    VALUES (
        %(accelerator)s, %(gpus)s, %(gpu_model)s, %(vram_mb)s, %(cpus)s, %(memory_mb)s,
        %(disk_mb)s, %(labels)s, %(nodes)s, %(target)s
    )
    ON CONFLICT ON CONSTRAINT shape_distinct DO UPDATE SET target = excluded.target
    RETURNING id
)
INSERT INTO lane (shape_id, queue, owner, paused, limited)
SELECT
    s.id, q.name, o.owner, q.paused OR o.paused,
    q.limited OR o.limited OR forge_team_limits(o.team)
FROM q, o, s
ON CONFLICT ON CONSTRAINT lane_distinct DO UPDATE SET paused = lane.paused
RETURNING id
