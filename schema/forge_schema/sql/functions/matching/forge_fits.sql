-- Whether an idle worker can serve a shape alone.
CREATE OR REPLACE FUNCTION forge_fits(s shape, w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.nodes = 1 AND forge_meets(s, w)
$$;
