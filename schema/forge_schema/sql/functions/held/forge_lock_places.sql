-- Locks jobs where they are, so that none of them begins or ends before this transaction does.
-- A job that moves meanwhile is found by the next look; one that was set aside is in no place.
-- Locks: ready, scheduled, lease, outcome, held, each in the order of job ids.
CREATE OR REPLACE FUNCTION forge_lock_places(wanted bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    found bigint[];
BEGIN
    FOR look IN 1..20 LOOP
        EXIT WHEN wanted = '{}';
        found := ARRAY(
            SELECT ready.job_id
            FROM job JOIN ready
                ON ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
            WHERE job.id = ANY(wanted)
            ORDER BY ready.job_id
            FOR SHARE OF ready
        );
        found := found || ARRAY(
            SELECT job_id FROM scheduled WHERE job_id = ANY(wanted) ORDER BY job_id FOR SHARE
        );
        found := found || ARRAY(
            SELECT job_id FROM lease WHERE job_id = ANY(wanted) ORDER BY job_id, rank FOR SHARE
        );
        found := found || ARRAY(
            SELECT job_id FROM outcome WHERE job_id = ANY(wanted) ORDER BY job_id FOR SHARE
        );
        found := found || ARRAY(
            SELECT job_id FROM held WHERE job_id = ANY(wanted) ORDER BY job_id FOR SHARE
        );
        wanted := ARRAY(SELECT unnest(wanted) EXCEPT SELECT unnest(found) ORDER BY 1);
    END LOOP;
END $$;
