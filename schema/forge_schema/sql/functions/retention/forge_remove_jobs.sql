-- Removes jobs that ended at least `keep` ago: of the next `most` ended jobs after `after`, in the
-- order of their ids. A job stays while anything unfinished starts from its
-- checkpoint or depends on it, and while another transaction holds a row that decides about that.
-- `reached` is the last job that it looked at; null if none is left that was submitted long enough
-- ago, since jobs are numbered in that order.
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
    PERFORM forge_remove(due);
    INSERT INTO event (at, actor, action, detail)
    VALUES (
        forge_now(), actor, 'jobs removed',
        jsonb_build_object('jobs', removed, 'first', due[1], 'last', due[removed])
    );
END $$;
