-- What was asked for in a job: its row, and its lane and shape, which it shares with others.
SELECT
    job.name, job.owner, job.kind, job.sweep, job.spec, job.bundle_digest, -job.nice AS priority,
    job.max_failures, job.max_losses, job.max_preemptions, job.backoff_s, job.timeout_s,
    lane.queue, shape.labels, shape.target
FROM job
JOIN lane ON lane.id = job.lane_id
JOIN shape ON shape.id = lane.shape_id
WHERE job.id = %(job_id)s
