-- Whether a suspected worker rests: it takes no jobs until its next try; see `forge_suspect`.
CREATE OR REPLACE FUNCTION forge_rests(w worker) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT w.suspected_for IS NOT NULL AND coalesce(w.rests_until > forge_now(), false)
$$;
