-- The running jobs that leave for this one, and the job, with its priority, for which this one's
-- newest attempt was asked to leave; null if it was not.
SELECT
    ARRAY(SELECT leaving FROM forge_leaving_for(%(job_id)s) AS leaving ORDER BY leaving) AS leaving,
    event.detail -> 'by' AS by, event.detail -> 'priority' AS priority
FROM (SELECT) AS always
LEFT JOIN event
    ON event.job_id = %(job_id)s AND event.action = 'displaced'
    AND event.detail ->> 'attempt' = (%(attempt)s::integer)::text
ORDER BY event.id DESC
LIMIT 1
