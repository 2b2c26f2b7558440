-- Begins the turn anew for which machines keep room for a gang, now that its run is settled; lets them go
-- unless the run had `lost` a member and waits for the next one.
-- Locks: forming, then draft. The caller holds the run's lock.
WITH waits AS MATERIALIZED (
    SELECT ready.job_id
    FROM job JOIN ready
        ON ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
    WHERE job.id = %(job_id)s AND %(lost)s
),
goes_on AS (
    UPDATE forming SET since = forge_now(), deadline = forge_now() + %(turn)s::interval
    FROM waits
    WHERE forming.job_id = waits.job_id AND forming.grows IS NULL
    RETURNING forming.job_id, forming.deadline
),
ends AS (
    DELETE FROM forming
    WHERE job_id = %(job_id)s AND grows IS NULL AND NOT EXISTS (SELECT FROM waits)
    RETURNING job_id
),
kept AS (
    UPDATE draft SET until = goes_on.deadline FROM goes_on WHERE draft.job_id = goes_on.job_id
)
DELETE FROM draft USING ends WHERE draft.job_id = ends.job_id
