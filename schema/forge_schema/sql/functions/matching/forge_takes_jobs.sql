-- Whether a worker that is idle, or has room, may be given jobs.
CREATE OR REPLACE FUNCTION forge_takes_jobs(w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT w.command IS NULL AND w.status IN ('connecting', 'idle', 'busy')
$$;
