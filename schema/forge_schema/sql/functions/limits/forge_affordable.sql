-- On how many machines, of so many, a job of a lane may run by what its limits leave of GPUs.
CREATE OR REPLACE FUNCTION forge_affordable(lane_id integer, machines integer) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT least(machines, min(
        forge_free_slots(bound.kind, bound.name, bound.most, machines * bound.slots) / bound.slots
    ))::integer
    FROM forge_limits_of(lane_id, 1) AS bound
    WHERE bound.kind IN ('queue_gpus', 'owner_gpus', 'team_gpus')
$$;
