-- The limits that a lane's jobs are under, and how many slots of each one such job takes, of a gang
-- on its least number of `machines` or on so many. A limit has 100,000 slots at most, more than ever run at once.
CREATE OR REPLACE FUNCTION forge_limits_of(lane_id integer, machines integer DEFAULT NULL)
RETURNS TABLE (kind text, name text, most integer, slots integer)
LANGUAGE sql STABLE ROWS 6 AS $$
    SELECT own.kind, own.name, least(own.most, 100000), own.slots
    FROM lane
    JOIN shape ON shape.id = lane.shape_id
    JOIN queue AS q ON q.name = lane.queue
    JOIN owner_quota AS o ON o.owner = lane.owner
    LEFT JOIN team AS t ON t.name = o.team
    CROSS JOIN LATERAL (
        VALUES
        ('queue_jobs', q.name, q.max_jobs, 1),
        ('queue_gpus', q.name, q.max_gpus, shape.gpus::integer * coalesce(machines, shape.nodes)),
        ('owner_jobs', o.owner, o.max_jobs, 1),
        ('owner_gpus', o.owner, o.max_gpus, shape.gpus::integer * coalesce(machines, shape.nodes)),
        ('team_jobs', t.name, t.max_jobs, 1),
        ('team_gpus', t.name, t.max_gpus, shape.gpus::integer * coalesce(machines, shape.nodes))
    ) AS own (kind, name, most, slots)
    WHERE lane.id = lane_id AND own.most IS NOT NULL AND own.slots > 0
$$;
