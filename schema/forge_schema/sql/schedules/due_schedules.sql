-- The schedules that are due, and why each submits nothing if its maker may not submit for its owner
-- any more.
SELECT
    id, owner, name, cron, timezone, spec, overlap, next_at, forge_now() AS now,
    forge_why_withheld(actor, owner, 'submitter') AS withheld
FROM schedule
WHERE next_at <= forge_now() AND NOT paused
ORDER BY next_at
LIMIT %(count)s
