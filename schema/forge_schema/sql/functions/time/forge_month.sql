-- When this month began, by UTC.
CREATE OR REPLACE FUNCTION forge_month() RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT date_trunc('month', forge_now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC'
$$;
