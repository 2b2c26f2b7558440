-- Whether one more job of a lane has a right to its GPUs: they are guaranteed to its queue, owner or
-- team, which use fewer. Limits are above that: what they hold back has no right.
CREATE OR REPLACE FUNCTION forge_is_guaranteed(of_lane integer) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT num_nonnulls(q.guaranteed_gpus, o.guaranteed_gpus, t.guaranteed_gpus) > 0
        AND EXISTS (SELECT FROM forge_guarantees(lane.id) AS due WHERE due.fits)
        AND (NOT lane.limited OR forge_room(lane.id, 1) > 0)
    FROM lane
    JOIN queue AS q ON q.name = lane.queue
    JOIN owner_quota AS o ON o.owner = lane.owner
    LEFT JOIN team AS t ON t.name = o.team
    WHERE lane.id = of_lane
$$;
