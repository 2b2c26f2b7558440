-- The number of jobs ended in each minute since a time, by outcome, of one owner or of all. Minutes
-- without any are left out. Jobs cancelled while they waited had no attempt and are not counted.
SELECT
    date_trunc('minute', attempt.finished_at) AS at, outcome.state, count(*)::integer AS jobs
FROM attempt
JOIN outcome ON outcome.job_id = attempt.job_id AND outcome.token = attempt.token
WHERE attempt.finished_at >= %(since)s
    AND (
        %(owner)s::text IS NULL
        OR attempt.lane_id IN (SELECT id FROM lane WHERE lane.owner = %(owner)s)
    )
GROUP BY 1, 2
ORDER BY 1, 2
