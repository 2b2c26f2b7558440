-- Makes a delivery of each event since a time and each notification of such events, once: of jobs
-- that began or ended, attempts that stalled, jobs that wait for approval, and silent or suspected workers.
-- Whether a notification's query chooses the job is found out later. One that is withheld misses
-- what happens meanwhile.
WITH found AS (
    SELECT
        CASE state WHEN 'dead' THEN 'failed' ELSE state::text END AS event, job_id AS subject,
        finished_at AS at,
        jsonb_build_object(
            'attempt', attempt, 'reason', reason, 'exit_code', exit_code, 'detail', detail
        ) AS facts
    FROM outcome WHERE finished_at >= %(since)s
    UNION ALL
    SELECT
        'stalled', job_id, finished_at,
        jsonb_build_object('attempt', attempt, 'reason', reason, 'detail', detail)
    FROM attempt_row WHERE finished_at >= %(since)s AND reason = 'stalled'
    UNION ALL
    SELECT 'started', job_id, started_at, jsonb_build_object('attempt', attempt)
    FROM (
        SELECT job_id, attempt, started_at FROM lease WHERE rank = 0
        UNION ALL
        SELECT job_id, attempt, started_at FROM outcome WHERE finished_at >= %(since)s
        UNION ALL
        SELECT job_id, attempt, started_at FROM attempt_row
        WHERE finished_at >= %(since)s AND rank = 0
    ) AS begun
    WHERE attempt = 1 AND started_at >= %(since)s
    UNION ALL
    SELECT 'approval', job_id, at, jsonb_build_object('approval', detail)
    FROM event WHERE at >= %(since)s AND action = 'asked for approval'
    UNION ALL
    SELECT
        'worker_' || event.action, event.worker_id, event.at,
        jsonb_build_object('name', coalesce(worker.name, former_worker.name))
            || CASE WHEN event.action = 'suspected' THEN event.detail ELSE '{}' END
    FROM event
    LEFT JOIN worker ON worker.id = event.worker_id
    LEFT JOIN former_worker ON former_worker.id = event.worker_id
    WHERE event.at >= %(since)s AND event.action IN ('offline', 'suspected')
),
made AS (
    INSERT INTO delivery (notification_id, event, subject, at, facts, next_at)
    SELECT notification.id, found.event, found.subject, found.at, found.facts, forge_now()
    FROM found
    LEFT JOIN job ON job.id = found.subject AND NOT found.event LIKE 'worker%%'
    JOIN notification
        ON found.event = ANY(notification.events) AND found.at >= notification.created_at
        AND notification.withheld IS NULL
        AND (
            notification.everyone
            OR (notification.team IS NULL AND notification.owner = job.owner)
            OR notification.team = forge_team(job.owner)
            OR found.event LIKE 'worker%%'
        )
    ON CONFLICT ON CONSTRAINT delivery_once_per_event DO NOTHING
    RETURNING id
),
told AS (
    UPDATE notifier SET noticed_at = greatest(noticed_at, %(until)s::timestamptz)
)
SELECT count(*) AS made FROM made
