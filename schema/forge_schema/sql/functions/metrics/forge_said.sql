-- A value of a line of metrics as the last that a job measured: a number, or "NaN", "Infinity" or
-- "-Infinity", which JSON has no numbers for. NULL if it is none of these.
CREATE OR REPLACE FUNCTION forge_said(value jsonb)
RETURNS jsonb
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN value IN ('"NaN"', '"Infinity"', '"-Infinity"') THEN value
        WHEN jsonb_typeof(value) <> 'number' THEN NULL
        WHEN abs(value::numeric) < 1e308 THEN coalesce(to_jsonb(forge_measured(value)), value)
        WHEN value::numeric > 0 THEN '"Infinity"'
        ELSE '"-Infinity"'
    END
$$;
