-- Copies the settings of a queue, of owners and of their teams to their lanes: the pause, and whether there is a limit.
-- Wakes workers, since there may be room for more jobs now.
WITH followed AS (
    UPDATE lane
    SET
        paused = q.paused OR o.paused,
        limited = num_nonnulls(
            q.max_jobs, q.max_gpus, o.max_jobs, o.max_gpus, t.max_jobs, t.max_gpus
        ) > 0
    FROM queue AS q, owner_quota AS o LEFT JOIN team AS t ON t.name = o.team
    WHERE (lane.queue = %(queue)s::text OR lane.owner = ANY(%(owners)s::text[]))
        AND q.name = lane.queue AND o.owner = lane.owner
    RETURNING lane.id
)
SELECT forge_wake(forge_waiting(ARRAY(SELECT id FROM followed), 1000))
