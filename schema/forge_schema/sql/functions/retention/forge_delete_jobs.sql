-- Removes ended jobs by id, of one owner or of any, as retention does, but at once. What their attempts
-- took stays in the history: a success moves to the table of the other attempts.
-- Says of each what it `became`: `deleted`, now or before; `unended`; `needed`, by the unfinished job
-- `needed_by`; or `busy`, while another transaction decides about it. Others do not exist.
-- Locks, none of which it waits for: outcome, job, checkpoint. Then sweep_cap.
CREATE OR REPLACE FUNCTION forge_delete_jobs(wanted bigint[], whose text, actor text)
RETURNS TABLE (job_id bigint, became text, needed_by bigint)
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    theirs bigint[] := ARRAY(
        SELECT job.id FROM job
        WHERE job.id = ANY(wanted) AND (whose IS NULL OR job.owner = whose)
    );
    due bigint[];
BEGIN
    due := forge_lock_removable(theirs, forge_now());
    -- A job that names one of them as an input from now on finds that it has no such files.
    due := ARRAY(
        SELECT free.id FROM unnest(due) AS free (id)
        EXCEPT SELECT need.job_id FROM forge_needed(due) AS need
    );
    RETURN QUERY
    SELECT
        other.id,
        CASE
            WHEN other.id = ANY(due) THEN 'deleted'
            WHEN NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = other.id) THEN 'unended'
            WHEN need.needed_by IS NOT NULL THEN 'needed'
            ELSE 'busy'
        END,
        need.needed_by
    FROM unnest(theirs) AS other (id)
    LEFT JOIN forge_needed(theirs) AS need ON need.job_id = other.id
    UNION ALL
    SELECT DISTINCT event.job_id, 'deleted', NULL::bigint
    FROM event
    WHERE event.job_id = ANY(wanted) AND event.job_id <> ALL(theirs) AND event.action = 'deleted'
        AND (whose IS NULL OR event.detail ->> 'owner' = whose);
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT
        forge_now(), actor, 'deleted', job.id,
        jsonb_build_object('name', job.name, 'owner', job.owner, 'state', outcome.state)
    FROM job JOIN outcome ON outcome.job_id = job.id
    WHERE job.id = ANY(due);
    INSERT INTO attempt_row (
        job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost, cpu_seconds,
        peak_memory_mb, peak_vram_mb, checkpoint_at
    )
    SELECT
        done.job_id, done.attempt, 0, done.finished_at, done.token, done.nonce, done.worker_id,
        done.lane_id, done.ready_at, done.claimed_at, done.started_at, done.reason, done.exit_code,
        done.detail, done.devices, done.gpu_seconds, done.energy_j, done.cost, done.cpu_seconds,
        done.peak_memory_mb, done.peak_vram_mb, done.checkpoint_at
    FROM outcome AS done
    WHERE done.job_id = ANY(due) AND done.worker_id IS NOT NULL;
    PERFORM forge_remove(due);
END $$;
