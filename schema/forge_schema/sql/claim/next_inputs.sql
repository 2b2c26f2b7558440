-- What a job that is ready needs from the store, if the worker could run it when idle.
SELECT job.bundle_digest, job.spec ->> 'image_tar' AS image_tar
FROM ready
JOIN lane ON lane.id = ready.lane_id
JOIN shape ON shape.id = lane.shape_id
JOIN worker ON worker.id = %(worker_id)s AND forge_serves(shape, worker)
JOIN job ON job.id = ready.job_id
WHERE ready.job_id = %(job_id)s
