-- For which reasons a job's attempts ended since it was last given fresh budgets.
SELECT reason, count(*)::integer AS attempts
FROM attempt
WHERE job_id = %(job_id)s AND rank = 0
    AND finished_at >= coalesce(
        (SELECT max(at) FROM event WHERE job_id = %(job_id)s AND action = 'retried'), '-infinity'
    )
GROUP BY reason
