-- Removes jobs that `forge_lock_removable` has locked, with every row of theirs outside the monthly
-- partitions. Their objects are deleted later, by their tombstones. The cap of a sweep leaves with
-- the last of its jobs.
CREATE OR REPLACE FUNCTION forge_remove(due bigint[]) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    DELETE FROM annotation WHERE job_id = ANY(due);
    DELETE FROM artifact WHERE job_id = ANY(due);
    DELETE FROM checkpoint WHERE job_id = ANY(due);
    DELETE FROM beginning WHERE job_id = ANY(due);
    DELETE FROM job_tag WHERE job_id = ANY(due);
    DELETE FROM log_chunk WHERE job_id = ANY(due);
    DELETE FROM metric_span WHERE job_id = ANY(due);
    DELETE FROM result WHERE job_id = ANY(due);
    DELETE FROM test_result WHERE job_id = ANY(due);
    DELETE FROM dependency WHERE job_id = ANY(due);
    DELETE FROM dependency WHERE needs_id = ANY(due);
    UPDATE schedule SET last_job_id = NULL WHERE last_job_id = ANY(due);
    -- The tombstones first: without one, a success stays.
    -- A worker that was cut off may store an ended job's files until it hears of the end: so long
    -- their objects wait.
    INSERT INTO tombstone (job_id, removed_at)
    SELECT job_id, greatest(forge_now(), finished_at + interval '1 hour')
    FROM outcome WHERE job_id = ANY(due);
    DELETE FROM outcome WHERE job_id = ANY(due);
    WITH gone AS (
        DELETE FROM job WHERE id = ANY(due) RETURNING owner, sweep
    )
    DELETE FROM sweep_cap USING (SELECT DISTINCT owner, sweep FROM gone) AS of
    WHERE sweep_cap.line = of.owner || '/' || of.sweep
        AND NOT EXISTS (
            SELECT FROM job
            WHERE job.owner = of.owner AND job.sweep = of.sweep AND job.id <> ALL(due)
        );
END $$;
