-- Of each other rank of a run, the checkpoint that belongs to rank 0's: the first that the rank took
-- after it, or if the program committed a step, the newest of that step. A rank that has none is left
-- out. A job has few checkpoints, of which one look finds those of all ranks.
CREATE OR REPLACE FUNCTION forge_companions(master checkpoint) RETURNS SETOF checkpoint
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT DISTINCT ON (one.rank) one.*
    FROM checkpoint AS one
    WHERE one.job_id = master.job_id AND one.attempt = master.attempt
        AND one.rank BETWEEN 1 AND master.nodes - 1
        AND CASE
            WHEN master.step IS NULL THEN one.follows >= master.number
            ELSE one.step = master.step
        END
    ORDER BY
        one.rank,
        CASE WHEN master.step IS NULL THEN one.follows END,
        CASE WHEN master.step IS NULL THEN one.number ELSE -one.number END
$$;
