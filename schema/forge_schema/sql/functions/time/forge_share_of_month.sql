-- How much of a span lies in this month: from 0 to 1, and 1 of a span without a length.
CREATE OR REPLACE FUNCTION forge_share_of_month(began timestamptz, ended timestamptz)
RETURNS double precision
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT coalesce(
        extract(EPOCH FROM ended - greatest(began, forge_month()))::double precision
        / nullif(extract(EPOCH FROM ended - began), 0)::double precision,
        1
    )
$$;
