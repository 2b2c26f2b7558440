-- The workers of a past are nobody's: without this they fall silent, and lose their jobs. Some are
-- offline in that past, and those that ran before it ended are gone.
UPDATE worker SET
    last_seen_at = forge_now() - make_interval(secs => 25 * random()),
    status = CASE
        WHEN status <> 'offline' THEN status
        WHEN EXISTS (SELECT FROM lease WHERE lease.worker_id = worker.id) THEN 'busy'
        ELSE 'idle'
    END
WHERE version = '0.9.0' AND id % 17 <> 0 AND id <= 500;
UPDATE lease SET expires_at = forge_now() + interval '1 day'
FROM worker WHERE worker.id = lease.worker_id AND worker.version = '0.9.0';
