-- Asks workers to end every job past its time limit: all members of a run as soon as one is.
-- Locks: lease by job and rank.
WITH late AS MATERIALIZED (
    SELECT DISTINCT job_id FROM lease
    WHERE deadline_at < forge_now() AND asked IS NULL AND over IS NULL
),
due AS MATERIALIZED (
    SELECT lease.job_id, lease.rank FROM late JOIN lease ON lease.job_id = late.job_id
    WHERE lease.asked IS NULL AND lease.over IS NULL
    ORDER BY lease.job_id, lease.rank
    FOR UPDATE OF lease
),
asked AS (
    UPDATE lease SET asked = 'timeout' FROM due
    WHERE lease.job_id = due.job_id AND lease.rank = due.rank
    RETURNING lease.job_id, lease.worker_id
),
told AS (
    INSERT INTO event (at, actor, action, job_id)
    SELECT forge_now(), %(actor)s, 'asked to time out', job_id
    FROM (SELECT DISTINCT job_id FROM asked) AS of_jobs
)
SELECT job_id, pg_notify('forge', 'asked:' || worker_id) FROM asked
