-- The newest actions about a job before a place of the trail, with the columns of `page_trail`. The
-- job's submit comes last.
WITH named AS MATERIALIZED (
    SELECT 'key:' || id AS called FROM api_key WHERE strpos(lower(owner), lower(%(actor)s)) > 0
    UNION ALL
    SELECT 'worker:' || id FROM worker WHERE strpos(lower(name), lower(%(actor)s)) > 0
),
told AS (
    SELECT id, NULL::bigint AS submitted, at, actor, action, job_id, worker_id, token, detail
    FROM event
    WHERE job_id = %(job_id)s AND id < %(before)s
    UNION ALL
    SELECT NULL, id, submitted_at, submitted_by, 'submitted', id, NULL, NULL, NULL
    FROM job
    WHERE id = %(job_id)s AND id < %(before_job)s AND submitted_by IS NOT NULL
)
SELECT
    NULL::bigint AS reached, NULL::bigint AS reached_job, NULL::timestamptz AS reached_at,
    0 AS looked, told.*
FROM told
WHERE (
        %(actor)s::text IS NULL OR strpos(lower(actor), lower(%(actor)s)) > 0
        OR actor IN (SELECT called FROM named)
    )
    AND (%(action)s::text IS NULL OR strpos(lower(action), lower(%(action)s)) > 0)
    AND (%(worker_id)s::bigint IS NULL OR worker_id = %(worker_id)s)
ORDER BY id DESC NULLS LAST
LIMIT %(count)s
