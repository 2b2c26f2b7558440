-- gauge_ended
-- How many attempts ended after a time, by queue and reason, up to a time by which all is settled,
-- and their GPU time. One row has nothing but that time, where there are none.
SELECT
    bounds.until, lane.queue, past.reason::text AS reason, past.attempts, past.gpu_seconds
FROM (
    SELECT
        greatest(
            %(since)s::timestamptz,
            least(
                forge_now() - %(settled)s::interval, %(since)s::timestamptz + interval '1 day'
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
