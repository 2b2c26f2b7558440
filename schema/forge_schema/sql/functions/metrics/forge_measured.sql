-- A value of a line of metrics or of a sample as a number. NULL if it is none, or one that no chart
-- can draw. Postgres refuses to make a float8 of the smallest.
CREATE OR REPLACE FUNCTION forge_measured(value jsonb)
RETURNS float8
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN jsonb_typeof(value) <> 'number' OR abs(value::numeric) >= 1e300 THEN NULL
        WHEN abs(value::numeric) < 1e-300 THEN 0
        ELSE value::float8
    END
$$;
