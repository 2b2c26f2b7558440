-- What each owner's running jobs hold, as an object: a job counts as its GPUs, one without as one.
CREATE OR REPLACE FUNCTION forge_held_by_owner() RETURNS jsonb
LANGUAGE sql STABLE AS $$
    SELECT coalesce(jsonb_object_agg(of_owner.owner, of_owner.held), '{}')
    FROM (
        SELECT lane.owner, sum(counted.leases * greatest(shape.gpus, 1)) AS held
        FROM (SELECT lane_id, count(*) AS leases FROM lease WHERE over IS NULL GROUP BY lane_id) AS counted
        JOIN lane ON lane.id = counted.lane_id
        JOIN shape ON shape.id = lane.shape_id
        GROUP BY lane.owner
    ) AS of_owner
$$;
