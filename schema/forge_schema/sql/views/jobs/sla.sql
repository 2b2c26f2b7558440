-- How soon jobs started and how many succeeded, by queue, owner and day of submission. Jobs
-- cancelled before any worker took them, and jobs not yet due, are left out.
CREATE VIEW sla AS
SELECT
    queue,
    owner,
    day,
    count(*) AS jobs,
    count(*) FILTER (WHERE waited_s IS NULL) AS waiting,
    count(*) FILTER (WHERE waited_s <= 60) AS started_1m,
    count(*) FILTER (WHERE waited_s <= 300) AS started_5m,
    count(*) FILTER (WHERE waited_s <= 3600) AS started_60m,
    count(*) FILTER (WHERE waited_s <= 60)::double precision / count(*) AS share_1m,
    count(*) FILTER (WHERE waited_s <= 300)::double precision / count(*) AS share_5m,
    count(*) FILTER (WHERE waited_s <= 3600)::double precision / count(*) AS share_60m,
    count(*) FILTER (WHERE state <> 'cancelled') AS ended,
    count(*) FILTER (WHERE state = 'succeeded') AS succeeded,
    count(*) FILTER (WHERE state = 'succeeded')::double precision
    / nullif(count(*) FILTER (WHERE state <> 'cancelled'), 0) AS share_succeeded
FROM (
    SELECT
        lane.queue,
        lane.owner,
        (job.submitted_at AT TIME ZONE 'UTC')::date AS day,
        outcome.state,
        job.run_at,
        extract(
            EPOCH FROM coalesce(first.claimed_at, lease.claimed_at)
            - greatest(job.submitted_at, job.run_at)
        )::double precision AS waited_s
    FROM job
    JOIN lane ON lane.id = job.lane_id
    -- One by one, so that a report on a few days reads only their jobs.
    LEFT JOIN LATERAL (
        SELECT ended.state FROM outcome AS ended WHERE ended.job_id = job.id LIMIT 1
    ) AS outcome ON true
    -- The bound skips the months before submission; a clock may have been set back a little.
    LEFT JOIN LATERAL (
        SELECT attempt.claimed_at FROM attempt
        WHERE attempt.job_id = job.id AND attempt.attempt = 1 AND attempt.rank = 0
            AND attempt.finished_at > job.submitted_at - interval '1 day'
        LIMIT 1
    ) AS first ON true
    LEFT JOIN lease ON lease.job_id = job.id AND lease.attempt = 1 AND lease.rank = 0
) AS submitted
WHERE waited_s IS NOT NULL OR (state IS NULL AND coalesce(run_at <= forge_now(), true))
GROUP BY queue, owner, day;
