-- The number of workers that reserve room for a waiting job before this one does: those that could
-- serve it and come earlier in an order that differs from job to job.
SELECT count(*) AS workers
FROM lane
JOIN shape ON shape.id = lane.shape_id
JOIN worker ON forge_fits(shape, worker)
WHERE lane.id = %(lane_id)s
    AND worker.status IN ('idle', 'busy')
    AND worker.command IS NULL
    AND md5(concat_ws(':', worker.id, %(job_id)s::bigint))
    < md5(concat_ws(':', %(worker_id)s::bigint, %(job_id)s::bigint))
