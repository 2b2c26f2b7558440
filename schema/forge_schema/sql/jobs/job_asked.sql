-- A job's request: its row, and the lane and shape that it shares with others, with the `version` of
-- the row. If its source checkpoint is gone, the request is for the newest one of the source job.
SELECT
    job.name, job.owner, job.kind, job.sweep, job.experiment, job.spec, job.bundle_digest,
    -job.nice AS priority, job.max_failures, job.max_losses, job.max_preemptions, job.backoff_s,
    job.timeout_s,
    lane.queue, shape.labels, shape.target, source.from_checkpoint,
    job.xmin::text AS version
FROM job
JOIN lane ON lane.id = job.lane_id
JOIN shape ON shape.id = lane.shape_id
LEFT JOIN LATERAL (
    SELECT jsonb_strip_nulls(jsonb_build_object(
        'job_id', job.source_job_id, 'attempt', max(kept.attempt), 'number', max(kept.number)
    )) AS from_checkpoint
    FROM checkpoint AS kept
    WHERE kept.job_id = job.source_job_id AND kept.token = job.source_token
        AND kept.number = job.source_number
) AS source ON job.source_job_id IS NOT NULL
WHERE job.id = %(job_id)s
