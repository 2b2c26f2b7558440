-- The tasks in a job's result, with what each of them took as its share of the job; one row of nulls
-- for a result without tasks. A job may write anything there, so nothing of it is believed. The number
-- of a task is its place, from 0; one that has not ended has no state.
CREATE OR REPLACE FUNCTION forge_tasks(found jsonb)
RETURNS TABLE (
    task integer, name text, state text, parameters jsonb, result jsonb, metrics jsonb,
    seconds float8, share float8
)
LANGUAGE sql IMMUTABLE PARALLEL SAFE ROWS 1 AS $$
    SELECT
        CASE WHEN its.listed THEN its.place - 1 END,
        CASE WHEN jsonb_typeof(its.entry -> 'name') = 'string' THEN left(its.entry ->> 'name', 200) END,
        CASE WHEN its.entry ->> 'state' IN ('succeeded', 'failed') THEN its.entry ->> 'state' END,
        CASE
            WHEN jsonb_typeof(its.entry -> 'parameters') = 'object' THEN its.entry -> 'parameters'
        END,
        CASE WHEN jsonb_typeof(its.entry -> 'result') = 'object' THEN its.entry -> 'result' END,
        (
            SELECT jsonb_object_agg(
                told.key, jsonb_build_object(
                    'last', forge_measured(told.value -> 'last'),
                    'min', forge_measured(told.value -> 'min'),
                    'max', forge_measured(told.value -> 'max')
                )
            )
            FROM jsonb_each(
                CASE jsonb_typeof(its.entry -> 'metrics') WHEN 'object' THEN its.entry -> 'metrics' END
            ) AS told (key, value)
            WHERE forge_measured(told.value -> 'last') IS NOT NULL
        ),
        its.seconds,
        CASE
            WHEN its.listed THEN coalesce(its.seconds / nullif(sum(its.seconds) OVER (), 0), 0)
            ELSE 1
        END
    FROM (
        SELECT
            listed.entry, listed.place::integer AS place,
            jsonb_typeof(found -> 'forge_tasks') IS NOT DISTINCT FROM 'array' AS listed,
            CASE
                WHEN forge_measured(listed.entry -> 'seconds') >= 0
                    THEN forge_measured(listed.entry -> 'seconds')
            END AS seconds
        FROM jsonb_array_elements(
            CASE jsonb_typeof(found -> 'forge_tasks')
                WHEN 'array' THEN found -> 'forge_tasks'
                ELSE '[null]'
            END
        ) WITH ORDINALITY AS listed (entry, place)
        LIMIT 1000
    ) AS its
$$;
