-- The complete checkpoints of a job, each by its row of rank 0. Nothing else counts as a checkpoint.
CREATE OR REPLACE FUNCTION forge_complete_checkpoints(job_id bigint) RETURNS SETOF checkpoint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT checkpoint.*
    FROM checkpoint
    WHERE checkpoint.job_id = $1 AND checkpoint.rank = 0
        AND (checkpoint.nodes = 1 OR forge_is_complete(checkpoint))
$$;
