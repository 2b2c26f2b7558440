-- The values of a span of metric lines, and those of later lines of the same span: for each key its
-- count, least, greatest, sum and last value. The count is of finite numbers; without any, the least
-- and the greatest are null. A job may write any number of keys: the 64 that came first stay, and
-- `progress`. The later ones have a sixth element, which is not kept: the line that they came in.
CREATE OR REPLACE FUNCTION forge_merge_spans(former jsonb, later jsonb)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(jsonb_object_agg(key, merged), '{}')
    FROM (
        SELECT
            key,
            CASE
                WHEN old.value IS NULL THEN new.value - 5
                WHEN new.value IS NULL THEN old.value
                ELSE jsonb_build_array(
                    (old.value ->> 0)::bigint + (new.value ->> 0)::bigint,
                    least((old.value ->> 1)::float8, (new.value ->> 1)::float8),
                    greatest((old.value ->> 2)::float8, (new.value ->> 2)::float8),
                    (old.value ->> 3)::float8 + (new.value ->> 3)::float8,
                    new.value -> 4
                )
            END AS merged
        FROM jsonb_each(former) AS old (key, value)
        FULL JOIN jsonb_each(later) AS new (key, value) USING (key)
        ORDER BY
            old.value IS NULL AND key <> 'progress', (new.value ->> 5)::integer, length(key), key
        LIMIT 64 + (former ? 'progress' OR later ? 'progress')::integer
    ) AS kept
$$;
