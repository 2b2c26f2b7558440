-- Releases the jobs that wait for a job that began just now.
CREATE OR REPLACE FUNCTION forge_job_begun() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM forge_release(ARRAY(
        SELECT DISTINCT job_id FROM dependency
        WHERE needs_id = new.job_id AND kind = 'after' AND met IS NULL
        LIMIT 10000
    ));
    RETURN NULL;
END $$;
