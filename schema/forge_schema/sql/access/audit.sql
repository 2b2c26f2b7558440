-- A page of the audit trail between two times, oldest first. Events of one moment are never split
-- between pages: a batch of jobs is submitted at one moment, and the next page begins after it. A
-- job's submit comes before what it led to at that moment.
WITH page AS (
    SELECT at, actor, action, job_id, worker_id, token, detail
    FROM audit
    WHERE at > %(after)s AND at <= %(until)s
        AND (%(job_id)s::bigint IS NULL OR job_id = %(job_id)s)
        AND (%(worker_id)s::bigint IS NULL OR worker_id = %(worker_id)s)
        AND (%(actor)s::text IS NULL OR actor = %(actor)s)
        AND (%(action)s::text IS NULL OR action = %(action)s)
    ORDER BY at
    FETCH FIRST %(count)s ROWS WITH TIES
)
SELECT at, actor, action, job_id, worker_id, token, detail
FROM page
ORDER BY at, job_id, token NULLS FIRST, action <> 'submitted'
