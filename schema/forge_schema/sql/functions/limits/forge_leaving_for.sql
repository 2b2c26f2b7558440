-- The running jobs that were asked to leave for a waiting one, and have not left yet.
CREATE OR REPLACE FUNCTION forge_leaving_for(waiting bigint) RETURNS SETOF bigint
LANGUAGE sql STABLE AS $$
    SELECT lease.job_id FROM lease
    WHERE lease.asked = 'preempted' AND lease.rank = 0 AND EXISTS (
        SELECT FROM event
        WHERE event.job_id = lease.job_id AND event.action = 'displaced'
            AND event.detail ->> 'by' = waiting::text
            AND event.detail ->> 'attempt' = lease.attempt::text
    )
$$;
