-- Locks jobs that ended by `until` and that nothing unfinished needs, and returns their ids in
-- order. Each step sees what was committed before it, and what comes later waits for these locks: a
-- retry for the outcome, a dependency for the job, a start from a checkpoint for that.
-- Locks, none of which it waits for: outcome, job, checkpoint.
CREATE OR REPLACE FUNCTION forge_lock_removable(wanted bigint[], until timestamptz) RETURNS bigint[]
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    due bigint[] := wanted;
BEGIN
    due := ARRAY(
        SELECT job_id FROM outcome
        WHERE job_id = ANY(due) AND finished_at <= until
        ORDER BY job_id
        FOR UPDATE SKIP LOCKED
    );
    due := ARRAY(SELECT id FROM job WHERE id = ANY(due) ORDER BY id FOR UPDATE SKIP LOCKED);
    due := ARRAY(
        WITH free AS MATERIALIZED (
            SELECT ctid AS place FROM checkpoint WHERE job_id = ANY(due) FOR UPDATE SKIP LOCKED
        )
        SELECT ended.id FROM unnest(due) AS ended (id)
        WHERE ended.id NOT IN (
            SELECT job_id FROM checkpoint
            WHERE job_id = ANY(due) AND ctid NOT IN (SELECT place FROM free)
        )
        ORDER BY ended.id
    );
    RETURN ARRAY(
        SELECT job.id FROM unnest(due) AS ended (id)
        JOIN job ON job.id = ended.id
        WHERE NOT EXISTS (
            SELECT FROM job AS heir
            WHERE heir.source_job_id = job.id
                AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = heir.id)
        )
        AND NOT EXISTS (
            SELECT FROM dependency AS edge
            WHERE edge.needs_id = job.id
                AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = edge.job_id)
        )
        -- After a restore, a job that has ended may be in one of these too.
        AND NOT EXISTS (SELECT FROM lease WHERE lease.job_id = job.id)
        AND NOT EXISTS (SELECT FROM scheduled WHERE scheduled.job_id = job.id)
        AND NOT EXISTS (SELECT FROM held WHERE held.job_id = job.id)
        AND NOT EXISTS (
            SELECT FROM ready
            WHERE ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
        )
        ORDER BY job.id
    );
END $$;
