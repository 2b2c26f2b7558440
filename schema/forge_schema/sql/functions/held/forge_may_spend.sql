-- What a job of a lane may spend in one attempt, on so many `machines` if given: GPU-hours, and money
-- at the dearest price of the workers that could run it. Infinity without a time limit, NaN if none of them has a price, and
-- null if its owner may spend any amount. No cost is computed if only that may be any amount.
CREATE OR REPLACE FUNCTION forge_may_spend(
    of_lane integer, time_limit_s integer, machines integer DEFAULT NULL,
    OUT gpu_hours double precision, OUT cost double precision
)
LANGUAGE plpgsql STABLE AS $$
DECLARE
    wanted shape;
    within owner_quota;
    hours double precision := coalesce(time_limit_s / 3600.0, 'Infinity');
    price double precision;
BEGIN
    SELECT o.* INTO within
    FROM lane JOIN owner_quota AS o ON o.owner = lane.owner
    WHERE lane.id = of_lane;
    IF num_nonnulls(within.approve_gpu_hours, within.approve_cost) = 0 THEN
        RETURN;
    END IF;
    SELECT shape.* INTO wanted
    FROM lane JOIN shape ON shape.id = lane.shape_id
    WHERE lane.id = of_lane;
    machines := coalesce(machines, wanted.nodes);
    gpu_hours := CASE WHEN wanted.gpus = 0 THEN 0 ELSE hours * wanted.gpus * machines END;
    IF within.approve_cost IS NOT NULL THEN
        price := (SELECT max(price_per_hour) FROM worker WHERE forge_meets(wanted, worker));
        cost := CASE WHEN price = 0 THEN 0 ELSE coalesce(price * machines * hours, 'NaN') END;
    END IF;
END $$;
