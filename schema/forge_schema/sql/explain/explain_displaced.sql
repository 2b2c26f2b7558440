-- The running jobs that leave for this one; the job, with its priority, for which this one's newest
-- attempt was asked to leave, and whom its GPUs are guaranteed to; or the owner whose budget was spent; and the job for which the free slots of
-- its queue are kept. Null if there is none.
SELECT
    ARRAY(SELECT leaving FROM forge_leaving_for(%(job_id)s) AS leaving ORDER BY leaving) AS leaving,
    event.detail -> 'by' AS by, event.detail -> 'priority' AS priority,
    event.detail ->> 'guaranteed_to' AS guaranteed_to,
    event.detail ->> 'owner' AS owner,
    (
        SELECT queue.yields_for
        FROM job
        JOIN lane ON lane.id = job.lane_id AND lane.limited
        JOIN queue ON queue.name = lane.queue
        WHERE job.id = %(job_id)s AND job.nice > forge_yields_to(queue.name)
    ) AS yields_for
FROM (SELECT) AS always
LEFT JOIN event
    ON event.job_id = %(job_id)s
    AND (event.action = 'displaced' OR event.action = 'asked to preempt' AND event.detail ? 'owner')
    AND event.detail ->> 'attempt' = (%(attempt)s::integer)::text
ORDER BY event.id DESC
LIMIT 1
