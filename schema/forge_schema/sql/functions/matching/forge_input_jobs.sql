-- The other jobs whose artifacts or checkpoints are inputs of a job; only those of the same owner.
CREATE OR REPLACE FUNCTION forge_input_jobs(job job) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    SELECT ARRAY(
        SELECT source.id
        FROM jsonb_each_text(job.spec -> 'inputs') AS input (name, source)
        JOIN job AS source
            ON source.id = substring(input.source FROM '^(?:artifact|checkpoint):([0-9]+)')::bigint
                AND source.owner = job.owner
    )
$$;
