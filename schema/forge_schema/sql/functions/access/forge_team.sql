-- The team of an owner, null if the owner is in none.
CREATE OR REPLACE FUNCTION forge_team(of_owner text) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT team FROM owner_quota WHERE owner = of_owner
$$;
