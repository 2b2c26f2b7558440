-- Whether the end of an attempt with this reason may be its worker's fault. A lost worker is silent, and
-- its jobs cost it nothing more.
CREATE OR REPLACE FUNCTION forge_accuses(why reason) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT why NOT IN ('preempted', 'drained', 'run_ended', 'cancelled', 'worker_lost', 'timeout')
$$;
