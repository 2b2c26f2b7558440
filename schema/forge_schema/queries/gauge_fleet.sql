-- gauge_fleet
-- How many workers are of each status, and how many GPUs they have.
SELECT
    status::text AS status, count(*)::integer AS workers,
    coalesce(sum(jsonb_array_length(gpus)), 0)::integer AS gpus
FROM worker
GROUP BY status
