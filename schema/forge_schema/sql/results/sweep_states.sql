-- The number of jobs of an owner's sweep in each state.
SELECT job_status.state, count(*) AS jobs
FROM job JOIN job_status ON job_status.job_id = job.id
WHERE job.owner = %(owner)s AND job.sweep = %(sweep)s
GROUP BY job_status.state
ORDER BY job_status.state
