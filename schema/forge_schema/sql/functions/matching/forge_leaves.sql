-- Whether a worker leaves jobs of a shape to spot machines for as long as `forge_avoidance` says: the
-- jobs prefer these, and one of them could have it.
CREATE OR REPLACE FUNCTION forge_leaves(s shape, w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT s.labels ? 'forge.prefers_spot'
        AND w.labels ->> 'forge.spot' IS DISTINCT FROM 'yes'
        AND EXISTS (
            SELECT FROM worker AS other
            WHERE other.labels ->> 'forge.spot' = 'yes'
                AND forge_takes_jobs(other) AND forge_serves(s, other)
        )
$$;
