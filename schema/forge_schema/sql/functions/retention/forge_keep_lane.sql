-- Refuses to remove a lane that has jobs. It sees those that were committed before this lane was
-- locked; others find the lane gone.
CREATE OR REPLACE FUNCTION forge_keep_lane() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM job WHERE job.lane_id = old.id) THEN
        RAISE EXCEPTION 'the lane % has jobs', old.id
            USING ERRCODE = 'foreign_key_violation', CONSTRAINT = 'job_lane', TABLE = 'job';
    END IF;
    RETURN NULL;
END $$;
