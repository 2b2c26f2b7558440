-- What a job has of a metric, the last value or the `extreme` of its `stem`, or of a key of its result.
-- A job that made many tasks has a value for each.
CREATE OR REPLACE FUNCTION forge_figures(
    of_job bigint, source text, wanted text, stem text, extreme text
) RETURNS SETOF jsonb
LANGUAGE plpgsql STABLE ROWS 1 AS $$
BEGIN
    IF source = 'metric' THEN
        RETURN NEXT (
            SELECT coalesce(
                (
                    array_agg(span.values -> wanted -> 4 ORDER BY span.token DESC)
                    FILTER (WHERE span.values ? wanted)
                )[1],
                to_jsonb(CASE extreme
                    WHEN 'min' THEN min((span.values -> stem ->> 1)::double precision)
                    WHEN 'max' THEN max((span.values -> stem ->> 2)::double precision)
                END)
            )
            FROM metric_span AS span
            WHERE span.job_id = of_job AND span.rank = 0 AND span.span = -1
        );
    END IF;
    RETURN QUERY
    SELECT CASE source
        WHEN 'metric'
            THEN coalesce(task.metrics -> wanted -> 'last', task.metrics -> stem -> extreme)
        ELSE coalesce(
            of_run.found -> wanted, of_run.found #> string_to_array(wanted, '.')
        )
    END
    FROM job_status
    JOIN result ON result.job_id = job_status.job_id AND result.token = job_status.token
    CROSS JOIN LATERAL forge_tasks(result.values) AS task
    CROSS JOIN LATERAL (
        SELECT CASE WHEN task.task IS NULL THEN result.values ELSE task.result END AS found
    ) AS of_run
    WHERE job_status.job_id = of_job;
END $$;
