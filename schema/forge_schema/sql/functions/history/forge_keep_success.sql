-- A success is history, and append-only as all of it: it leaves with its job.
CREATE OR REPLACE FUNCTION forge_keep_success() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (SELECT FROM tombstone WHERE job_id = OLD.job_id) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'a success is append-only' USING ERRCODE = 'insufficient_privilege';
END $$;
