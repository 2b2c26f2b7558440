-- The newest actions of the audit trail before a given one. At most `reach` actions are examined.
-- If none of them matches, there is one row without an action.
WITH looked AS MATERIALIZED (
    SELECT id, at, actor, action, job_id, worker_id, token, detail
    FROM event
    WHERE id < %(before)s
    ORDER BY id DESC
    LIMIT %(reach)s
),
span AS MATERIALIZED (
    SELECT min(id) AS reached, min(at) AS reached_at, count(*)::integer AS looked FROM looked
),
found AS MATERIALIZED (
    SELECT *
    FROM looked
    WHERE (%(actor)s::text IS NULL OR strpos(lower(actor), lower(%(actor)s)) > 0)
        AND (%(action)s::text IS NULL OR strpos(lower(action), lower(%(action)s)) > 0)
        AND (%(worker_id)s::bigint IS NULL OR worker_id = %(worker_id)s)
    ORDER BY id DESC
    LIMIT %(count)s
)
SELECT
    span.reached, span.reached_at, span.looked, found.id, found.at, found.actor, found.action,
    found.job_id, found.worker_id, found.token, found.detail
FROM span
LEFT JOIN found ON true
ORDER BY found.id DESC
