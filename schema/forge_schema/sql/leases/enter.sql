-- Returns where a rank of a job runs, and records that somebody enters it if its program runs.
WITH held AS (
    SELECT lease.job_id, lease.worker_id, worker.name AS worker, lease.phase
    FROM lease
    JOIN worker ON worker.id = lease.worker_id
    WHERE lease.job_id = %(job_id)s AND lease.rank = %(rank)s AND lease.over IS NULL
),
told AS (
    INSERT INTO event (at, actor, action, job_id, worker_id, detail)
    SELECT forge_now(), %(actor)s, 'entered', job_id, worker_id, %(detail)s::jsonb
    FROM held WHERE phase = 'running'
)
SELECT worker_id, worker, phase FROM held
