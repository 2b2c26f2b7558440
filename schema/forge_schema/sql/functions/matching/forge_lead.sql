-- How far an owner is ahead of the others, in GPU-seconds by weight; negative if behind. `ahead` is
-- by its usage, NULL if it has none yet, and `away` for how long it had no jobs.
-- Nobody is ahead or behind by more than one day's share. Who was away for five minutes, or was
-- never here, is not behind.
CREATE OR REPLACE FUNCTION forge_lead(ahead double precision, away interval, pace double precision)
RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN ahead IS NULL THEN 0
        ELSE greatest(
            CASE WHEN away > interval '5 minutes' THEN 0 ELSE -86400 * pace END,
            least(ahead, 86400 * pace)
        )
    END
$$;
