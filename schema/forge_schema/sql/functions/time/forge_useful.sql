-- The fraction of an attempt's time that counts, from 0 to 1: see `forge_useful_until`.
CREATE OR REPLACE FUNCTION forge_useful(
    ended_by reason, claimed_at timestamptz, checkpoint_at timestamptz, finished_at timestamptz
) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN ended_by = 'succeeded' THEN 1
        WHEN finished_at > claimed_at THEN
            extract(
                EPOCH FROM
                forge_useful_until(ended_by, claimed_at, checkpoint_at, finished_at) - claimed_at
            )::double precision
            / extract(EPOCH FROM finished_at - claimed_at)::double precision
        ELSE 0
    END
$$;
