-- Moves a schedule on from a time that was due: to the job submitted for it, or to why none was.
-- Without a next time it is paused. Changes nothing if somebody else has moved it on.
UPDATE schedule
SET
    last_due_at = next_at,
    last_job_id = coalesce(%(job_id)s::bigint, last_job_id),
    error = %(error)s,
    next_at = coalesce(%(next_at)s::timestamptz, next_at),
    paused = paused OR %(next_at)s::timestamptz IS NULL
WHERE id = %(schedule_id)s AND next_at = %(due_at)s
RETURNING id
