-- The number of workers by status, and how many GPUs they have.
SELECT
    now.status::text AS status, count(*)::integer AS workers,
    coalesce(sum(jsonb_array_length(worker.gpus)), 0)::integer AS gpus
FROM worker
LEFT JOIN (
    SELECT lease.worker_id, count(*) AS leases FROM lease
    WHERE lease.over IS NULL
    GROUP BY lease.worker_id
) AS held ON held.worker_id = worker.id
CROSS JOIN LATERAL (SELECT forge_status(worker.status, held.leases) AS status) AS now
GROUP BY now.status
