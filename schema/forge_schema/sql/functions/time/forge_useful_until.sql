-- Until when an attempt's work counts: to its end if it succeeded; to its last stored checkpoint if
-- it was interrupted through no fault of the job; otherwise not at all.
CREATE OR REPLACE FUNCTION forge_useful_until(
    ended_by reason, claimed_at timestamptz, checkpoint_at timestamptz, finished_at timestamptz
) RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN ended_by = 'succeeded' THEN finished_at
        WHEN ended_by IN (
            'preempted', 'drained', 'worker_lost', 'gpu_fault', 'storage_failed', 'start_failed'
        ) THEN greatest(claimed_at, least(coalesce(checkpoint_at, claimed_at), finished_at))
        ELSE claimed_at
    END
$$;
