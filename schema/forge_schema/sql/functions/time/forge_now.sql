-- The one clock. Tests replace this function to set the time.
CREATE OR REPLACE FUNCTION forge_now() RETURNS timestamptz
LANGUAGE sql VOLATILE PARALLEL SAFE AS $$
    SELECT clock_timestamp()
$$;
