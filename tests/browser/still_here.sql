-- The workers of a past are nobody's: without this they fall silent, and lose their jobs.
WITH seen AS (
    UPDATE worker SET last_seen_at = forge_now() - make_interval(secs => 25 * random())
    WHERE status <> 'offline' AND version = '0.9.0'
)
UPDATE lease SET expires_at = forge_now() + interval '1 day'
FROM worker WHERE worker.id = lease.worker_id AND worker.version = '0.9.0';
