-- The jobs that a name could mean, newest first: the owner's before others', jobs of exactly this
-- name before those whose names begin with it. With `nth`, the owner's nth newest job. Only the
-- newest jobs are searched: no index on names makes a submit dearer.
WITH mine AS MATERIALIZED (
    SELECT newest.id, newest.owner, newest.name
    FROM lane CROSS JOIN LATERAL (
        SELECT job.id, job.owner, job.name FROM job
        WHERE job.lane_id = lane.id
        ORDER BY job.id DESC LIMIT (
            -- Fewer of each lane if there are many: all are read before the newest are known.
            SELECT coalesce(
                %(nth)s::bigint,
                least(%(look)s::bigint, greatest(100, 2 * %(look)s::bigint / greatest(count(*), 1)))
            ) FROM lane WHERE lane.owner = %(owner)s
        )
    ) AS newest
    WHERE lane.owner = %(owner)s
    ORDER BY newest.id DESC LIMIT %(look)s
),
others AS MATERIALIZED (
    SELECT id, owner, name FROM job
    WHERE (%(others)s::text[] IS NULL OR cardinality(%(others)s::text[]) > 0)
        AND (%(others)s::text[] IS NULL OR owner = ANY(%(others)s::text[]))
        AND %(nth)s::integer IS NULL AND owner <> %(owner)s
        AND id > (SELECT max(id) FROM job) - %(look)s::bigint
),
named AS MATERIALIZED (
    SELECT
        id, owner, name,
        rank() OVER (ORDER BY owner <> %(owner)s, name <> %(name)s) AS place
    FROM (SELECT * FROM mine UNION ALL SELECT * FROM others) AS searched
    WHERE %(nth)s::integer IS NULL AND starts_with(name, %(name)s)
)
(
    SELECT id AS job_id, owner, name, count(*) OVER () AS found
    FROM named WHERE place = 1
    ORDER BY id DESC LIMIT %(shown)s
)
UNION ALL
(
    SELECT id AS job_id, owner, name, 1 AS found
    FROM mine
    WHERE %(nth)s::integer IS NOT NULL
    ORDER BY id DESC OFFSET coalesce(%(nth)s::integer, 1) - 1 LIMIT 1
)
ORDER BY job_id DESC
