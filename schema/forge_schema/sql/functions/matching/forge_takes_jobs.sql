-- Whether a worker that is idle, or has room, may be given jobs. A suspected one rests meanwhile; see
-- `forge_suspect`.
CREATE OR REPLACE FUNCTION forge_takes_jobs(w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT w.command IS NULL AND w.status IN ('connecting', 'idle', 'busy') AND NOT forge_rests(w)
$$;
