-- How much of a span lies after a time: from 0 to 1, and 1 of a span without a length.
CREATE OR REPLACE FUNCTION forge_share_since(since timestamptz, began timestamptz, ended timestamptz)
RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(
        extract(EPOCH FROM ended - greatest(began, since))::double precision
        / nullif(extract(EPOCH FROM ended - began), 0)::double precision,
        1
    )
$$;
