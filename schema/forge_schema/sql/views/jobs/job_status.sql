-- Every job with the queue's own state: where it is, or how it ended. People read `jobs`.
CREATE VIEW job_status AS
SELECT
    job.id AS job_id,
    job.name,
    job.owner,
    lane.queue,
    -job.nice AS priority,
    CASE
        WHEN outcome.job_id IS NOT NULL THEN outcome.state
        WHEN lease.job_id IS NOT NULL THEN 'running'
        WHEN ready.job_id IS NOT NULL THEN 'ready'
        -- A new value of an enum, which an upgrade cannot use before it is committed.
        WHEN scheduled.job_id IS NULL AND EXISTS (SELECT FROM held WHERE held.job_id = job.id)
            THEN 'held'::text::state
        ELSE 'scheduled'
    END AS state,
    coalesce(
        lease.attempt, ready.attempt, scheduled.attempt, outcome.attempt,
        (SELECT held.attempt FROM held WHERE held.job_id = job.id), 0::smallint
    ) AS attempt,
    outcome.reason,
    lease.asked,
    outcome.exit_code,
    outcome.detail,
    forge_phase(lease) AS phase,
    lease.progress,
    lease.worker_id,
    worker.name AS worker,
    scheduled.run_at,
    job.submitted_at,
    -- Of a job that has ended, the last attempt's: an outcome has it itself only of a success.
    coalesce(lease.started_at, outcome.started_at, CASE WHEN outcome.job_id IS NOT NULL THEN (
        SELECT max(ended.started_at) FROM attempt_row AS ended
        WHERE ended.job_id = job.id AND ended.attempt = outcome.attempt AND ended.rank = 0
            AND ended.finished_at > job.submitted_at - interval '1 day'
    ) END) AS started_at,
    outcome.finished_at,
    outcome.token,
    job.bundle_digest,
    -- Subqueries: with a join, a page of jobs timed out on a long history.
    CASE WHEN num_nonnulls(outcome.job_id, lease.job_id, ready.job_id, scheduled.job_id) = 0 THEN (
        SELECT array_remove(ARRAY[
            CASE WHEN needs.jobs THEN 'jobs' END,
            CASE WHEN held.approval IS NOT NULL THEN 'approval' END,
            CASE
                WHEN held.line IS NOT NULL AND held.approval IS NULL AND NOT needs.jobs THEN 'turn'
            END
        ], NULL)
        FROM held
        CROSS JOIN LATERAL (
            SELECT EXISTS (
                SELECT FROM dependency
                WHERE dependency.job_id = held.job_id AND dependency.met IS NOT TRUE
            ) AS jobs
        ) AS needs
        WHERE held.job_id = job.id
    ) END AS waits_for,
    CASE WHEN num_nonnulls(outcome.job_id, lease.job_id, ready.job_id, scheduled.job_id) = 0 THEN (
        SELECT held.approval FROM held WHERE held.job_id = job.id
    ) END AS approval,
    (SELECT shape.nodes FROM shape WHERE shape.id = lane.shape_id)::integer AS nodes,
    CASE
        WHEN lease.nodes > 1 THEN ARRAY(
            SELECT coalesce(its.name, member.worker_id::text)
            FROM lease AS member LEFT JOIN worker AS its ON its.id = member.worker_id
            WHERE member.job_id = job.id
            ORDER BY member.rank
        )
        ELSE array_remove(ARRAY[worker.name], NULL)
    END AS workers,
    job.sweep,
    job.experiment,
    ARRAY(
        SELECT job_tag.tag FROM job_tag WHERE job_tag.job_id = job.id ORDER BY job_tag.tag
    ) AS tags,
    (SELECT annotation.note FROM annotation WHERE annotation.job_id = job.id) AS note,
    coalesce(
        (SELECT annotation.archived FROM annotation WHERE annotation.job_id = job.id), false
    ) AS archived
FROM job
JOIN lane ON lane.id = job.lane_id
LEFT JOIN outcome ON outcome.job_id = job.id
LEFT JOIN lease ON lease.job_id = job.id AND lease.rank = 0
LEFT JOIN ready
    ON ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
LEFT JOIN scheduled ON scheduled.job_id = job.id
LEFT JOIN worker ON worker.id = lease.worker_id;
