-- Whether a worker of this price per hour, null if nobody set one, costs no more than a shape allows.
-- They are compared as JSON: what is not a number is not allowed, and no error for everybody.
CREATE OR REPLACE FUNCTION forge_affords(wanted jsonb, price double precision) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT NOT wanted ? 'forge.max_price'
        OR coalesce(to_jsonb(price) <= wanted -> 'forge.max_price', false)
$$;
