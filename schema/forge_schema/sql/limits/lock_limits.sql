-- Locks the limits that apply to some lanes, so that only one claim at a time counts against them.
WITH queues AS (
    SELECT q.name FROM queue AS q
    WHERE q.name IN (SELECT queue FROM lane WHERE id = ANY(%(lanes)s::integer[]))
        AND num_nonnulls(q.max_jobs, q.max_gpus) > 0
    ORDER BY q.name
    FOR NO KEY UPDATE
),
owners AS (
    SELECT o.owner FROM owner_quota AS o
    WHERE o.owner IN (SELECT owner FROM lane WHERE id = ANY(%(lanes)s::integer[]))
        AND num_nonnulls(o.max_jobs, o.max_gpus) > 0
    ORDER BY o.owner
    FOR NO KEY UPDATE
)
SELECT (SELECT count(*) FROM queues) + (SELECT count(*) FROM owners)
