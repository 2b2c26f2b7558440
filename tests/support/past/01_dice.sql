-- What the other steps draw from: the same number for the same n and seed, every time.
CREATE FUNCTION pg_temp.u(n bigint, seed bigint) RETURNS double precision
LANGUAGE sql IMMUTABLE AS $$
    SELECT (hashint8extended(n, seed) & 2147483647) / 2147483648.0::float8
$$;
CREATE FUNCTION pg_temp.nonce(token bigint) RETURNS uuid
LANGUAGE sql IMMUTABLE AS $$
    SELECT (lpad(to_hex(token), 32, '0'))::uuid
$$;
CREATE FUNCTION pg_temp.pick(words text[], chance double precision) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT words[1 + floor(chance * cardinality(words))::integer]
$$;
-- Few owners submit most jobs; the last owner of the twenty submits nearly none.
CREATE FUNCTION pg_temp.some_lane(n bigint) RETURNS integer
LANGUAGE sql IMMUTABLE AS $$
    SELECT 20 * floor(10 * pg_temp.u(n, 11))::integer
        + 1 + floor(19 * pg_temp.u(n, 12) ^ 2)::integer
$$;
SELECT forge_add_months(parent, now - interval '180 days', 8)
FROM scale, unnest(ARRAY['attempt_row', 'event', 'metric', 'sample']) AS parent;
