-- Takes turns from jobs that are neither ready nor scheduled nor running, as after a restore, and
-- gives the free ones to others. Returns how many it gave.
-- Locks: lines in their order.
CREATE OR REPLACE FUNCTION forge_mend_turns() RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    this text;
    lines text[] := ARRAY(
        SELECT line FROM turn UNION SELECT line FROM held WHERE line IS NOT NULL ORDER BY line
    );
BEGIN
    FOREACH this IN ARRAY lines LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(this, 0));
    END LOOP;
    DELETE FROM turn
    WHERE NOT EXISTS (SELECT FROM lease WHERE lease.job_id = turn.job_id)
        AND NOT EXISTS (SELECT FROM scheduled WHERE scheduled.job_id = turn.job_id)
        AND NOT EXISTS (
            SELECT FROM job JOIN ready
                ON ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
            WHERE job.id = turn.job_id
        )
        AND turn.line = ANY(lines);
    RETURN forge_give_turns(lines);
END $$;
