-- The number of attempts ended after a time, by queue and reason, and their GPU time, up to a time
-- before which all ends are committed. If there are none, one row has only that time.
SELECT
    bounds.until, lane.queue, past.reason::text AS reason, past.attempts, past.gpu_seconds
FROM (
    SELECT
        greatest(
            %(since)s::timestamptz,
            least(
                forge_now() - %(committed_after)s::interval, %(since)s::timestamptz + interval '1 day'
            )
        ) AS until
) AS bounds
LEFT JOIN LATERAL (
    SELECT
        attempt.lane_id, attempt.reason, count(*)::integer AS attempts,
        sum(attempt.gpu_seconds) AS gpu_seconds
    FROM attempt
    WHERE attempt.finished_at > %(since)s::timestamptz AND attempt.finished_at <= bounds.until
    GROUP BY attempt.lane_id, attempt.reason
) AS past ON true
LEFT JOIN lane ON lane.id = past.lane_id
