-- A page of queues by name: settings, ready and running jobs of some owners or of all, the GPUs in
-- use, and since when the oldest job has waited. An owner sees only queues they have used.
WITH page AS MATERIALIZED (
    SELECT queue.name, queue.paused, queue.max_jobs, queue.max_gpus
    FROM queue
    WHERE queue.name > %(after)s
        AND (
            %(scope)s::text[] IS NULL
            OR EXISTS (
                SELECT FROM lane WHERE lane.queue = queue.name AND lane.owner = ANY(%(scope)s::text[])
            )
        )
    ORDER BY queue.name
    LIMIT %(count)s
),
mine AS MATERIALIZED (
    SELECT lane.id, lane.queue, shape.gpus, shape.nodes
    FROM page
    JOIN lane ON lane.queue = page.name
    JOIN shape ON shape.id = lane.shape_id
    WHERE %(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[])
),
waiting AS MATERIALIZED (
    SELECT
        mine.queue, sum(counted.jobs) AS jobs, sum(counted.jobs * mine.gpus * mine.nodes) AS gpus,
        min(counted.oldest_at) AS oldest_at
    FROM mine
    CROSS JOIN LATERAL (
        SELECT count(*) AS jobs, min(ready.ready_at) AS oldest_at
        FROM ready
        WHERE ready.lane_id = mine.id
    ) AS counted
    GROUP BY mine.queue
),
held AS MATERIALIZED (
    SELECT
        mine.queue, count(*) FILTER (WHERE lease.rank = 0) AS jobs, sum(mine.gpus) AS gpus
    FROM lease
    JOIN mine ON mine.id = lease.lane_id
    GROUP BY mine.queue
)
SELECT
    page.name, page.paused, page.max_jobs, page.max_gpus,
    coalesce(waiting.jobs, 0)::integer AS waiting,
    coalesce(waiting.gpus, 0)::integer AS waiting_gpus,
    extract(EPOCH FROM forge_now() - waiting.oldest_at)::double precision AS oldest_s,
    coalesce(held.jobs, 0)::integer AS running,
    coalesce(held.gpus, 0)::integer AS running_gpus
FROM page
LEFT JOIN waiting ON waiting.queue = page.name
LEFT JOIN held ON held.queue = page.name
ORDER BY page.name
