-- Removes jobs that ended at least `keep` ago, with every row of theirs outside the monthly
-- partitions: of the next `most` ended jobs after `after`, in the order of their ids. Their objects
-- are deleted later, by their tombstones. A job stays while anything unfinished starts from its
-- checkpoint or depends on it, and while another transaction holds a row that decides about that.
-- `reached` is the last job that it looked at; null if none is left that was submitted long enough
-- ago, since jobs are numbered in that order.
-- The cap of a sweep leaves with the last of its jobs.
-- Locks, none of which it waits for: outcome, job, checkpoint. Then sweep_cap.
CREATE OR REPLACE FUNCTION forge_remove_jobs(
    after bigint, keep interval, most integer, actor text,
    OUT reached bigint, OUT removed integer
)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    until timestamptz := forge_now() - keep;
    due bigint[];
BEGIN
    SELECT
        max(next.job_id),
        coalesce(array_agg(next.job_id) FILTER (WHERE next.finished_at <= until), '{}')
    INTO reached, due
    FROM (
        SELECT outcome.job_id, outcome.finished_at, job.submitted_at
        FROM outcome JOIN job ON job.id = outcome.job_id
        WHERE outcome.job_id > after
        ORDER BY outcome.job_id
        LIMIT most
    ) AS next
    WHERE next.submitted_at <= until;
    due := forge_lock_removable(due, until);
    removed := cardinality(due);
    IF removed = 0 THEN
        RETURN;
    END IF;
    DELETE FROM artifact WHERE job_id = ANY(due);
    DELETE FROM checkpoint WHERE job_id = ANY(due);
    DELETE FROM beginning WHERE job_id = ANY(due);
    DELETE FROM log_chunk WHERE job_id = ANY(due);
    DELETE FROM metric_span WHERE job_id = ANY(due);
    DELETE FROM result WHERE job_id = ANY(due);
    DELETE FROM test_result WHERE job_id = ANY(due);
    DELETE FROM dependency WHERE job_id = ANY(due);
    DELETE FROM dependency WHERE needs_id = ANY(due);
    UPDATE schedule SET last_job_id = NULL WHERE last_job_id = ANY(due);
    -- The tombstones first: without one, a success stays.
    INSERT INTO tombstone (job_id, removed_at) SELECT unnest(due), forge_now();
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
    INSERT INTO event (at, actor, action, detail)
    VALUES (
        forge_now(), actor, 'jobs removed',
        jsonb_build_object('jobs', removed, 'first', due[1], 'last', due[removed])
    );
END $$;
