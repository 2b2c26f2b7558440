-- How some jobs stand, by id.
SELECT * FROM job_status WHERE job_id = ANY(%(job_ids)s::bigint[])
