-- Whether an attempt failed before it got past what it began with. Within a minute, it counts as got
-- past only if it had reported metrics and had stored checkpoints while it ran; within ten minutes,
-- if it had done either. A signal from outside is not the program's failure, and neither is what
-- happens after it has committed a step.
CREATE OR REPLACE FUNCTION forge_failed_early(
    of_job bigint, of_attempt smallint, why reason, code integer, ran interval,
    progress double precision
) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT ran < '10 minutes'
        AND (
            why = 'oom'
            -- SIGHUP, SIGINT, SIGKILL and SIGTERM.
            OR why = 'exit_code' AND coalesce(code NOT IN (-1, -2, -9, -15, 129, 130, 137, 143), false)
        )
        AND NOT stored.committed
        AND CASE
            WHEN ran < '1 minute' AND why = 'exit_code'
                THEN NOT (reported.it AND stored.count > 1)
            ELSE NOT (reported.it OR stored.count > 1)
        END
    FROM (
        -- One of them may have been stored at the end.
        SELECT count(*) AS count, coalesce(bool_or(step IS NOT NULL), false) AS committed
        FROM checkpoint
        WHERE checkpoint.job_id = of_job AND checkpoint.attempt = of_attempt AND checkpoint.rank = 0
    ) AS stored
    CROSS JOIN LATERAL (
        SELECT progress IS NOT NULL OR EXISTS (
            SELECT FROM metric WHERE metric.job_id = of_job AND metric.attempt = of_attempt
        ) AS it
    ) AS reported
$$;
