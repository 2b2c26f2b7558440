-- Moves held jobs that wait for nothing any more, neither approval nor a turn, to ready, or to scheduled if
-- they are delayed.
CREATE OR REPLACE FUNCTION forge_let_go(waiting bigint[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH gone AS (
        DELETE FROM held USING unnest(waiting) AS held_job (id)
        WHERE held.job_id = held_job.id
            AND held.approval IS NULL
            AND (
                held.line IS NULL OR EXISTS (SELECT FROM turn WHERE turn.job_id = held.job_id)
            )
            AND NOT EXISTS (
                SELECT FROM dependency
                WHERE dependency.job_id = held_job.id AND dependency.met IS NOT TRUE
            )
        RETURNING held.job_id, held.lane_id, held.nice, held.attempt
    ),
    free AS MATERIALIZED (
        SELECT
            gone.*, job.run_at, forge_now() AS now,
            forge_parts(job.owner, job.bundle_digest, job.spec) AS parts
        FROM gone JOIN job ON job.id = gone.job_id
    ),
    -- After a restore, a job may be held and in another place too.
    now_ready AS (
        INSERT INTO ready (lane_id, nice, job_id, attempt, ready_at, parts)
        SELECT lane_id, nice, job_id, attempt, now, parts FROM free
        WHERE run_at IS NULL OR run_at <= now
        ON CONFLICT DO NOTHING
        RETURNING lane_id, parts
    ),
    later AS (
        INSERT INTO scheduled (job_id, lane_id, nice, attempt, run_at)
        SELECT job_id, lane_id, nice, attempt, run_at FROM free WHERE run_at > now
        ON CONFLICT DO NOTHING
    ),
    told AS (
        INSERT INTO event (at, actor, action, job_id)
        SELECT now, 'queue', 'released', job_id FROM free
    )
    SELECT forge_wake(array_agg(lane_id), 'ready', array_agg(parts::text))
    FROM now_ready
$$;
