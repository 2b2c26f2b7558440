-- The schedules of some owners or of all, by name, or only the one of a name; each with the state of
-- the last job that it submitted.
SELECT
    schedule.id, schedule.owner, schedule.name, schedule.cron, schedule.timezone, schedule.spec,
    schedule.paused, schedule.overlap, schedule.next_at, schedule.last_due_at,
    schedule.last_job_id, schedule.error, job_status.state AS last_state, forge_now() AS now
FROM schedule
LEFT JOIN job_status ON job_status.job_id = schedule.last_job_id
WHERE (%(scope)s::text[] IS NULL OR schedule.owner = ANY(%(scope)s::text[]))
    AND (%(name)s::text IS NULL OR schedule.name = %(name)s)
ORDER BY schedule.name, schedule.owner
