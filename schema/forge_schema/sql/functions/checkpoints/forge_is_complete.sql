-- Whether every other rank of its run has stored its part of a checkpoint of rank 0. It is asked only
-- about runs on several machines: `nodes = 1 OR forge_is_complete(checkpoint)`.
CREATE OR REPLACE FUNCTION forge_is_complete(master checkpoint) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT count(*) = master.nodes - 1 FROM forge_companions(master)
$$;
