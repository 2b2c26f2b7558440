-- Whether an admin, and not single sign-on, put an owner into a team: a person sees that team then,
-- whatever the issuer says.
CREATE OR REPLACE FUNCTION forge_placed(of_owner text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT FROM owner_quota WHERE owner = of_owner AND team IS NOT NULL AND NOT by_issuer
    )
$$;
