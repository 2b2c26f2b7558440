-- The schedules that are due, whether each must wait for the end of its last job, and why it submits
-- nothing if its maker may not submit for its owner any more.
SELECT
    id, owner, name, cron, timezone, spec, next_at, forge_now() AS now,
    forge_why_withheld(actor, owner, 'submitter') AS withheld,
    CASE
        WHEN NOT overlap AND last_job_id IS NOT NULL
            AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = last_job_id)
            THEN last_job_id
    END AS unfinished
FROM schedule
WHERE next_at <= forge_now() AND NOT paused
ORDER BY next_at
LIMIT %(count)s
