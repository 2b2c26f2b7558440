-- Asks workers to end every job past its time limit.
WITH asked AS (
    UPDATE lease SET asked = 'timeout'
    WHERE deadline_at < forge_now() AND asked IS NULL
    RETURNING job_id, worker_id
),
told AS (
    INSERT INTO event (at, actor, action, job_id)
    SELECT DISTINCT forge_now(), %(actor)s, 'asked to time out', job_id FROM asked
)
SELECT job_id, pg_notify('forge', 'asked:' || worker_id) FROM asked
