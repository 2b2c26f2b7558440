-- Until when an attempt's work counts: to its end if it succeeded; to its last stored checkpoint if
-- it was interrupted through no fault of the job; otherwise not at all. A member of a run that was
-- over because of another one has a checkpoint if that one was interrupted.
CREATE OR REPLACE FUNCTION forge_useful_until(
    ended_by reason, claimed_at timestamptz, checkpoint_at timestamptz, finished_at timestamptz
) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN ended_by = 'succeeded' THEN finished_at
        WHEN ended_by NOT IN (
            'exit_code', 'oom', 'disk_full', 'timeout', 'stalled', 'bundle_corrupt',
            'image_missing', 'cancelled'
        ) THEN greatest(claimed_at, least(coalesce(checkpoint_at, claimed_at), finished_at))
        ELSE claimed_at
    END
$$;
