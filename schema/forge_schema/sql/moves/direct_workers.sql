-- Workers that reach the database themselves and are not offline, with the jobs that they hold.
SELECT worker.id, worker.name, worker.command, count(lease.job_id) AS leases
FROM worker
LEFT JOIN lease ON lease.worker_id = worker.id AND lease.over IS NULL
WHERE worker.token_hash IS NULL AND worker.status <> 'offline'
GROUP BY worker.id, worker.name, worker.command
ORDER BY worker.name
