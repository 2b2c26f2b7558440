-- Whether an attempt was asked to leave for another job, or since its owner's budget is spent. It costs
-- the job no preemption: it would be lost once others have taken its place too often.
-- Volatile, so that it sees more than the statement that ends the attempt does: that may have waited for
-- whoever asked.
CREATE OR REPLACE FUNCTION forge_made_room(of_job bigint, of_attempt smallint) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM event
        WHERE event.job_id = of_job
            AND (action = 'displaced' OR action = 'asked to preempt' AND event.detail ? 'owner')
            AND event.detail ->> 'attempt' = of_attempt::text
    )
$$;
