-- Whether a worker may be chosen for a gang at all, now or once it has room.
CREATE OR REPLACE FUNCTION forge_joins(w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT forge_takes_jobs(w) AND (w.gangs_after IS NULL OR w.gangs_after <= forge_now())
$$;
