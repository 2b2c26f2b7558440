-- Ends held jobs with a dependency that can no longer be met, and returns their ids.
CREATE OR REPLACE FUNCTION forge_end_failed(waiting bigint[]) RETURNS bigint[]
LANGUAGE sql VOLATILE AS $$
    WITH failing AS MATERIALIZED (
        SELECT DISTINCT ON (edge.job_id) edge.job_id, edge.needs_id, outcome.state
        FROM unnest(waiting) AS held_job (id)
        JOIN dependency AS edge ON edge.job_id = held_job.id AND NOT edge.met
        LEFT JOIN outcome ON outcome.job_id = edge.needs_id
        ORDER BY edge.job_id, edge.needs_id
    ),
    gone AS (
        DELETE FROM held USING failing WHERE held.job_id = failing.job_id
        RETURNING held.job_id, held.attempt, failing.needs_id, failing.state
    ),
    -- After a restore, a job may have ended and still be held.
    ended AS (
        INSERT INTO outcome (job_id, state, reason, attempt, detail, finished_at)
        SELECT
            job_id, 'cancelled', 'dependency_failed', attempt,
            format(
                'job %s %s', needs_id,
                CASE WHEN state = 'cancelled' THEN 'was cancelled' ELSE 'failed' END
            ),
            forge_now()
        FROM gone
        ON CONFLICT DO NOTHING
    ),
    unsettled AS (
        -- By `met IS NULL`, a plan may read those of all jobs for each of them.
        UPDATE dependency SET met = false FROM gone
        WHERE dependency.job_id = gone.job_id AND num_nulls(dependency.met) = 1
    ),
    told AS (
        INSERT INTO event (at, actor, action, job_id, detail)
        SELECT
            forge_now(), 'queue', 'dependency failed', job_id,
            jsonb_build_object('needs', needs_id)
        FROM gone
    )
    SELECT ARRAY(SELECT job_id FROM gone)
$$;
