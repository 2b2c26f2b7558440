-- Whether an unfinished job starts from a checkpoint. Volatile, so that it sees rows committed
-- after its statement began, by a submit that the statement had to wait for.
CREATE OR REPLACE FUNCTION forge_is_source(job_id bigint, token bigint, number integer)
RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM job
        WHERE job.source_job_id = $1 AND job.source_token = $2 AND job.source_number = $3
            AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = job.id)
    )
$$;
