-- Whether an idle worker can serve a shape: alone, or as one of the machines of a gang.
CREATE OR REPLACE FUNCTION forge_serves(s shape, w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT (s.nodes = 1 OR w.address IS NOT NULL) AND forge_meets(s, w)
$$;
