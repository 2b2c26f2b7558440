-- What a lease cost, by the price of its worker; null if it has none. Workers report it themselves,
-- unless they are lost.
CREATE OR REPLACE FUNCTION forge_cost(holder bigint, claimed_at timestamptz, finished_at timestamptz)
RETURNS double precision
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT nullif(worker.price_per_hour, 0) / 3600
        * extract(EPOCH FROM finished_at - claimed_at)::double precision
    FROM worker WHERE worker.id = holder
$$;
