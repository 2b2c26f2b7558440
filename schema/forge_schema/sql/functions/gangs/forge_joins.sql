-- Whether a worker may be chosen for a gang at all, now or once it has room: others could reach it, and
-- it is not silent.
CREATE OR REPLACE FUNCTION forge_joins(w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT forge_takes_jobs(w) AND forge_is_fresh(w)
    AND (w.gangs_after IS NULL OR w.gangs_after <= forge_now())
$$;
