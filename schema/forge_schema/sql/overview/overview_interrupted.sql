-- The number of attempts ended since a time through no fault of their jobs, by reason, of one owner
-- or of all.
SELECT attempt.reason, count(*)::integer AS attempts
FROM attempt
WHERE attempt.finished_at >= %(since)s
    AND attempt.reason IN (
        'preempted', 'drained', 'worker_lost', 'gpu_fault', 'storage_failed', 'start_failed'
    )
    AND (
        %(scope)s::text[] IS NULL
        OR attempt.lane_id IN (SELECT id FROM lane WHERE lane.owner = ANY(%(scope)s::text[]))
    )
GROUP BY attempt.reason
ORDER BY attempt.reason
