-- How dear a worker is for what it computes, in steps of a fifth; null, which goes first, if it costs
-- nothing that is known. Without a `speed`, of `forge_speed`, its price alone counts.
CREATE OR REPLACE FUNCTION forge_dear(price double precision, speed double precision)
RETURNS integer
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT round(ln(
        nullif(price, 0)
        / coalesce(nullif((speed * 4 - floor(speed * 4)) / (1 - speed * 4 + floor(speed * 4)), 0), 1)
    ) / ln(1.2))::integer
$$;
