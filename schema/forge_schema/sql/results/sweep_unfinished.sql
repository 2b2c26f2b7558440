-- The jobs of an owner's sweep that have not ended.
SELECT id FROM job
WHERE owner = %(owner)s AND sweep = %(sweep)s
    AND NOT EXISTS (SELECT FROM outcome WHERE outcome.job_id = job.id)
