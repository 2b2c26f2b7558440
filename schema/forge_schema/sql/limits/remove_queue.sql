-- Removes a queue that no job is in, and its settings. `jobs` is how many are in it, up to 1000; null
-- if there is no such queue.
WITH gone AS MATERIALIZED (
    SELECT forge_remove_queue(%(queue)s) AS jobs
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'queue removed', jsonb_build_object('name', %(queue)s::text)
    FROM gone WHERE jobs = 0
)
SELECT jobs FROM gone
