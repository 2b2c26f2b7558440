-- The preference for a worker and a job that it can run; the highest goes first. A local worker is
-- the last resort for a job that may run anywhere. Then counts what the worker need not fetch: the
-- inputs most, then the image, the environment and the bundle. `warm` is what it has, of
-- `forge_parts`. A worker that lacks an input of the job has less, so that the most stays 15. Where
-- workers are compared, `forge_speed` is added as the last, fractional term.
CREATE OR REPLACE FUNCTION forge_preference(
    last_resort boolean, parts integer[], warm integer[]
) RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN last_resort THEN 0 ELSE 8 END
        + CASE WHEN parts[1] IS NULL OR parts[1] = ANY(warm) THEN 4 ELSE 0 END
        + CASE WHEN parts[2] IS NULL OR parts[2] = ANY(warm) THEN 2 ELSE 0 END
        + CASE WHEN parts[3] IS NULL OR parts[3] = ANY(warm) THEN 1 ELSE 0 END
        - CASE WHEN cardinality(parts) > 3 AND NOT parts[4:] <@ warm THEN 8 ELSE 0 END
$$;
