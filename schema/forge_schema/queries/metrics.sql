-- The metric lines of a job after a place.
SELECT token, number, attempt, at, step, values
FROM metric
WHERE job_id = %(job_id)s AND (token, number) > (%(token)s, %(number)s)
ORDER BY token, number
LIMIT %(count)s
