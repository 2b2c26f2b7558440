-- The trail, in the order of its times.
INSERT INTO event (id, at, actor, action, job_id, worker_id, detail)
SELECT row_number() OVER (ORDER BY at), at, actor, action, job_id, worker_id, detail
FROM (
    SELECT ready_at AS at, 'sweeper' AS actor, 'promoted' AS action, job_id,
        NULL::bigint AS worker_id, NULL::jsonb AS detail
    FROM told
    WHERE attempt > 1
    UNION ALL
    SELECT finished_at - interval '1 second', 'user:ann', 'asked to preempt', job_id, NULL, NULL
    FROM told WHERE reason = 'preempted' AND token % 4 = 0
    UNION ALL
    SELECT finished_at, 'user:bob', 'cancelled', job_id, NULL, NULL
    FROM outcome WHERE state = 'cancelled'
    UNION ALL
    SELECT now - n * interval '12 hours' - id * interval '1 second', 'worker:' || id,
        'status_changed', NULL, id, '{"from": "idle", "to": "busy"}'
    FROM worker, scale, generate_series(1, attempts / 10000) AS n
    UNION ALL
    SELECT now - interval '180 days' + id * interval '1 second', 'worker:' || id, 'registered',
        NULL, id, jsonb_build_object('name', name)
    FROM worker, scale
    UNION ALL
    SELECT now - n * interval '13 days', 'user:root', 'queue set', NULL, NULL, '{"name": "nightly"}'
    FROM scale, generate_series(1, 12) AS n
) AS happened
ORDER BY at;
SELECT setval('event_id', (SELECT max(id) FROM event));
DELETE FROM worker WHERE id > 500;
