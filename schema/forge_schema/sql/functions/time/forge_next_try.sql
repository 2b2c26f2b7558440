-- When a waiting delivery is tried next: once its own pause is over, and its notification's. A test
-- that has not been tried is due since ever, so it goes before all others, and through a pause.
CREATE OR REPLACE FUNCTION forge_next_try(next_at timestamptz, paused_until timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT CASE WHEN next_at = '-infinity' THEN next_at ELSE greatest(next_at, paused_until) END
$$;
