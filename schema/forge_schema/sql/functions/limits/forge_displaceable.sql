-- The running jobs of a queue that may leave for one of a lower `nice`, with the seconds of work that
-- all of their machines lose: since their last checkpoint, or since they started.
CREATE OR REPLACE FUNCTION forge_displaceable(of_queue text, below smallint, age interval)
RETURNS TABLE (job_id bigint, lost_s double precision)
LANGUAGE sql STABLE AS $$
    SELECT
        lease.job_id,
        sum(extract(EPOCH FROM forge_now() - greatest(
            coalesce(lease.started_at, forge_now()),
            (SELECT max(created_at) FROM checkpoint WHERE checkpoint.job_id = lease.job_id)
        )))::float8
    FROM lease JOIN lane ON lane.id = lease.lane_id
    WHERE lane.queue = of_queue AND lease.nice > below
    GROUP BY lease.job_id
    HAVING bool_and(
        lease.over IS NULL AND lease.asked IS NULL AND lease.claimed_at <= forge_now() - age
        AND lease.phase IN ('claimed', 'preparing', 'running')
    )
$$;
