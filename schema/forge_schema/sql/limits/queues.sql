-- The queues that the owners of a scope have used, or all (null): their settings, and of these owners
-- the ready and running jobs, and the GPUs in use.
WITH waiting AS MATERIALIZED (
    SELECT lane.queue, sum(counted.jobs) AS jobs
    FROM lane
    CROSS JOIN LATERAL (SELECT count(*) AS jobs FROM ready WHERE ready.lane_id = lane.id) AS counted
    WHERE %(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[])
    GROUP BY lane.queue
),
held AS MATERIALIZED (
    SELECT
        lane.queue, count(*) FILTER (WHERE lease.rank = 0) AS jobs, sum(shape.gpus) AS gpus
    FROM lease
    JOIN lane ON lane.id = lease.lane_id
    JOIN shape ON shape.id = lane.shape_id
    WHERE %(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[])
    GROUP BY lane.queue
)
SELECT
    queue.name, queue.paused, queue.max_jobs, queue.max_gpus, queue.guaranteed_gpus,
    queue.preemption, queue.preempts_after_s, queue.most_preempted,
    coalesce(waiting.jobs, 0)::integer AS waiting,
    coalesce(held.jobs, 0)::integer AS running,
    coalesce(held.gpus, 0)::integer AS gpus
FROM queue
LEFT JOIN waiting ON waiting.queue = queue.name
LEFT JOIN held ON held.queue = queue.name
WHERE %(scope)s::text[] IS NULL
    OR EXISTS (
        SELECT FROM lane WHERE lane.queue = queue.name AND lane.owner = ANY(%(scope)s::text[])
    )
ORDER BY queue.name
