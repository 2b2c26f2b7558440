-- What a worker is doing: what it was last heard to be, and whether it is idle or busy by the
-- leases that it holds now.
CREATE OR REPLACE FUNCTION forge_status(heard worker_status, leases bigint) RETURNS worker_status
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN heard NOT IN ('idle', 'busy') THEN heard
        WHEN leases > 0 THEN 'busy'
        ELSE 'idle'
    END::worker_status
$$;
