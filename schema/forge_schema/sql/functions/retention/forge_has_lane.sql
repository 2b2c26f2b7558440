-- Refuses jobs whose lane is gone, and keeps their lanes until the statement commits, as a foreign key
-- would. That looks for each job, which took a sixth of the time of a large submit.
-- Locks: lane, shared.
CREATE OR REPLACE FUNCTION forge_has_lane() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (
        SELECT FROM (SELECT DISTINCT lane_id FROM these) AS named
        WHERE NOT EXISTS (SELECT FROM lane WHERE lane.id = named.lane_id FOR KEY SHARE)
    ) THEN
        RAISE EXCEPTION 'the lane of a job was removed'
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'job_lane', TABLE = 'job';
    END IF;
    RETURN NULL;
END $$;
