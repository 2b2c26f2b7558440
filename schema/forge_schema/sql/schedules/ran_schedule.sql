-- Notes the job of a run by hand as the last one of its schedule, whose next time stays. Changes
-- nothing if a later job is noted, or if the job was deleted meanwhile.
UPDATE schedule
SET last_due_at = %(due_at)s, last_job_id = job.id, error = NULL
FROM job
WHERE schedule.id = %(schedule_id)s
    AND job.id = %(job_id)s
    AND coalesce(schedule.last_job_id, 0) < job.id
RETURNING schedule.id
