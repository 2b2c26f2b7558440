-- How many jobs have each state, of some owners, teams and queues, submitted within a time: of those
-- that wait or run, and of those that ended among the newest `look`. `more` tells whether there are
-- older ones, which may have ended in any way. Archived ones are not counted.
WITH lanes AS MATERIALIZED (
    SELECT lane.id
    FROM lane
    WHERE (%(scope)s::text[] IS NULL OR lane.owner = ANY(%(scope)s::text[]))
        AND (%(owners)s::text[] IS NULL OR lane.owner LIKE ANY(%(owners)s))
        AND (
            %(teams)s::text[] IS NULL
            OR lane.owner IN (SELECT o.owner FROM owner_quota AS o WHERE o.team LIKE ANY(%(teams)s))
        )
        AND (%(queues)s::text[] IS NULL OR lane.queue LIKE ANY(%(queues)s))
),
-- Fewer of each lane if there are many: all are read before the newest are known.
span AS MATERIALIZED (
    SELECT least(%(look)s::bigint, 20000 / greatest((SELECT count(*) FROM lanes), 1)) AS reach
),
newest AS MATERIALIZED (
    SELECT found.id
    FROM (
        (
            SELECT job.id FROM job
            WHERE NOT %(in_lanes)s
            ORDER BY job.id DESC LIMIT (SELECT reach FROM span)
        )
        UNION ALL
        SELECT own.id
        FROM lanes CROSS JOIN LATERAL (
            SELECT job.id FROM job
            WHERE %(in_lanes)s AND job.lane_id = lanes.id
            ORDER BY job.id DESC LIMIT (SELECT reach FROM span)
        ) AS own
    ) AS found
    ORDER BY found.id DESC
    LIMIT (SELECT reach FROM span)
),
there AS (
    (
        SELECT scheduled.job_id, 'scheduled'::state AS state
        FROM scheduled JOIN lanes ON lanes.id = scheduled.lane_id LIMIT %(most)s::bigint
    )
    UNION ALL
    (
        SELECT held.job_id, 'held'::text::state
        FROM held JOIN lanes ON lanes.id = held.lane_id LIMIT %(most)s::bigint
    )
    UNION ALL
    (
        SELECT ready.job_id, 'ready'::state
        FROM ready JOIN lanes ON lanes.id = ready.lane_id LIMIT %(most)s::bigint
    )
    UNION ALL
    (
        SELECT lease.job_id, 'running'::state
        FROM lease JOIN lanes ON lanes.id = lease.lane_id
        WHERE lease.rank = 0 LIMIT %(most)s::bigint
    )
    UNION ALL
    SELECT outcome.job_id, outcome.state
    FROM newest JOIN outcome ON outcome.job_id = newest.id
    WHERE NOT coalesce(
        (SELECT kept.archived FROM annotation AS kept WHERE kept.job_id = newest.id), false
    )
)
SELECT
    there.state,
    count(*)::integer AS jobs,
    (SELECT count(*) FROM newest) = (SELECT reach FROM span) AS more
FROM there
WHERE %(since)s::timestamptz IS NULL
    OR (SELECT job.submitted_at FROM job WHERE job.id = there.job_id) >= %(since)s::timestamptz
GROUP BY there.state
