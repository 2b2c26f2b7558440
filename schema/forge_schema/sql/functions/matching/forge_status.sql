-- A worker's status: as last reported, but idle or busy according to the leases that it holds now.
CREATE OR REPLACE FUNCTION forge_status(heard worker_status, leases bigint) RETURNS worker_status
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN heard NOT IN ('idle', 'busy') THEN heard
        WHEN leases > 0 THEN 'busy'
        ELSE 'idle'
    END::worker_status
$$;
