-- Whether an idle worker can be one of the machines of a gang of this shape.
CREATE OR REPLACE FUNCTION forge_fits_gang(s shape, w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.nodes > 1 AND w.address IS NOT NULL AND forge_meets(s, w)
$$;
