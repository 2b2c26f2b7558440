-- Jobs by id as runs of their experiments.
SELECT * FROM runs WHERE job_id = ANY(%(job_ids)s::bigint[]) ORDER BY task
