-- The members of a job's run on several machines that are not over, as others of the run see them.
SELECT
    lease.rank, lease.step, lease.phase, lease.nodes,
    coalesce(worker.name, former_worker.name, lease.worker_id::text) AS worker
FROM lease
LEFT JOIN worker ON worker.id = lease.worker_id
LEFT JOIN former_worker ON former_worker.id = lease.worker_id
WHERE lease.job_id = %(job_id)s AND lease.nodes > 1 AND lease.over IS NULL
ORDER BY lease.rank
