-- The newest actions of the audit trail before a place, which is an event and a job: those from there
-- on were on earlier pages. At most `reach` actions are examined. If none of them matches, there is
-- one row without an action.
-- Submits are in the rows of their jobs. Each of the two is in the order of its ids, even where the
-- times are not, so that nothing is lost between two pages.
WITH told AS MATERIALIZED (
    (
        SELECT
            min(at) OVER newer_events AS place, id, NULL::bigint AS submitted, at, actor, action,
            job_id, worker_id, token, detail
        FROM event
        WHERE id < %(before)s
        WINDOW newer_events AS (ORDER BY id DESC)
        ORDER BY id DESC
        LIMIT %(reach)s
    )
    UNION ALL
    (
        SELECT
            min(submitted_at) OVER newer_jobs, NULL, id, submitted_at, submitted_by, 'submitted',
            id, NULL, NULL, NULL
        FROM job
        WHERE id < %(before_job)s
        WINDOW newer_jobs AS (ORDER BY id DESC)
        ORDER BY id DESC
        LIMIT %(reach)s
    )
),
looked AS MATERIALIZED (
    SELECT * FROM told ORDER BY place DESC, id DESC NULLS LAST, submitted DESC LIMIT %(reach)s
),
span AS MATERIALIZED (
    SELECT
        coalesce(min(id), %(before)s) AS reached,
        coalesce(min(submitted), %(before_job)s) AS reached_job,
        min(at) AS reached_at, count(*)::integer AS looked
    FROM looked
),
named AS MATERIALIZED (
    SELECT 'key:' || id AS called FROM api_key WHERE strpos(lower(owner), lower(%(actor)s)) > 0
    UNION ALL
    SELECT 'worker:' || id FROM worker WHERE strpos(lower(name), lower(%(actor)s)) > 0
),
found AS MATERIALIZED (
    SELECT *
    FROM looked
    WHERE actor IS NOT NULL
        AND (
            %(actor)s::text IS NULL OR strpos(lower(actor), lower(%(actor)s)) > 0
            OR actor IN (SELECT called FROM named)
        )
        AND (%(action)s::text IS NULL OR strpos(lower(action), lower(%(action)s)) > 0)
        AND (%(worker_id)s::bigint IS NULL OR worker_id = %(worker_id)s)
    ORDER BY place DESC, id DESC NULLS LAST, submitted DESC
    LIMIT %(count)s
)
SELECT
    span.reached, span.reached_job, span.reached_at, span.looked, found.id, found.submitted,
    found.at, found.actor, found.action, found.job_id, found.worker_id, found.token, found.detail
FROM span
LEFT JOIN found ON true
ORDER BY found.place DESC, found.id DESC NULLS LAST, found.submitted DESC
