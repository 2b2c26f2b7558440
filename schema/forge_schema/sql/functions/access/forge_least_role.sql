-- The least role of whoever is told of such events: only admins see all owners' jobs, and workers.
CREATE OR REPLACE FUNCTION forge_least_role(everyone boolean, events text[]) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN everyone OR 'worker_offline' = ANY(events) THEN 'admin' ELSE 'viewer' END
$$;
