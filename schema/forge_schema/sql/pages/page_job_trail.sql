-- The newest actions about a job before a given one, with the columns of `page_trail`.
WITH found AS MATERIALIZED (
    SELECT id, at, actor, action, job_id, worker_id, token, detail
    FROM event
    WHERE job_id = %(job_id)s
        AND id < %(before)s
        AND (%(actor)s::text IS NULL OR strpos(lower(actor), lower(%(actor)s)) > 0)
        AND (%(action)s::text IS NULL OR strpos(lower(action), lower(%(action)s)) > 0)
        AND (%(worker_id)s::bigint IS NULL OR worker_id = %(worker_id)s)
    ORDER BY id DESC
    LIMIT %(count)s
)
SELECT
    NULL::bigint AS reached, NULL::timestamptz AS reached_at, 0 AS looked, id, at, actor, action,
    job_id, worker_id, token, detail
FROM found
ORDER BY id DESC
