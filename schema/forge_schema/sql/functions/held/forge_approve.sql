-- Approves those of some jobs that wait for it, and releases those that wait for nothing else.
-- Returns their ids. Of two calls about one job, the second waits for the first and finds none.
-- Locks: held in the order of job ids, then lines.
CREATE OR REPLACE FUNCTION forge_approve(wanted bigint[], approver text) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    waiting bigint[] := ARRAY(
        SELECT job_id FROM held
        WHERE job_id = ANY(wanted) AND approval IS NOT NULL
        ORDER BY job_id
        FOR UPDATE
    );
BEGIN
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT forge_now(), approver, 'approved', job_id, approval FROM held
    WHERE job_id = ANY(waiting);
    UPDATE held SET approval = NULL WHERE job_id = ANY(waiting);
    PERFORM forge_release(waiting);
    RETURN waiting;
END $$;
