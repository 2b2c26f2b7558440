-- Removes up to `most` lanes without a job and as many shapes without a lane, and returns how many.
-- One that is locked is about to be used. Whoever comes later with the id of a removed lane is
-- refused by a trigger of `job`, and looks for the lane again.
-- Locks: lane and shape, neither of which it waits for.
CREATE OR REPLACE FUNCTION forge_remove_lanes(most integer) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    unused integer[];
    lanes integer;
    shapes integer;
BEGIN
    unused := ARRAY(
        SELECT id FROM lane
        WHERE NOT EXISTS (SELECT FROM job WHERE job.lane_id = lane.id)
        ORDER BY id
        LIMIT most
        FOR UPDATE OF lane SKIP LOCKED
    );
    -- Looked at again: a job may have come before the lock did.
    DELETE FROM lane
    WHERE id = ANY(unused) AND NOT EXISTS (SELECT FROM job WHERE job.lane_id = lane.id);
    GET DIAGNOSTICS lanes = ROW_COUNT;
    unused := ARRAY(
        SELECT id FROM shape
        WHERE NOT EXISTS (SELECT FROM lane WHERE lane.shape_id = shape.id)
        ORDER BY id
        LIMIT most
        FOR UPDATE OF shape SKIP LOCKED
    );
    DELETE FROM shape
    WHERE id = ANY(unused) AND NOT EXISTS (SELECT FROM lane WHERE lane.shape_id = shape.id);
    GET DIAGNOSTICS shapes = ROW_COUNT;
    RETURN lanes + shapes;
END $$;
