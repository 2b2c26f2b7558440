-- Removes a queue that no job is in, and its lanes. Returns how many jobs are in it, counted up to
-- 1000; null if there is no such queue. Whoever comes later with the id of a removed lane is refused by
-- a trigger of `job`, and makes the queue anew.
-- Locks, in the order of `ensure_lane`: queue, then its lanes.
CREATE OR REPLACE FUNCTION forge_remove_queue(gone text) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    inside integer;
BEGIN
    PERFORM FROM queue WHERE name = gone FOR UPDATE;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    PERFORM FROM lane WHERE queue = gone ORDER BY id FOR UPDATE;
    -- In a snapshot of its own: a job may have come before the locks did.
    SELECT count(*) INTO inside
    FROM (
        SELECT FROM lane JOIN job ON job.lane_id = lane.id WHERE lane.queue = gone LIMIT 1000
    ) AS found;
    IF inside = 0 THEN
        DELETE FROM lane WHERE queue = gone;
        DELETE FROM queue WHERE name = gone;
    END IF;
    RETURN inside;
END $$;
