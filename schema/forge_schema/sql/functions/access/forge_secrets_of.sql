-- The team whose secrets a job may use now: its owner's, null if it uses none.
CREATE OR REPLACE FUNCTION forge_secrets_of(of_owner text, spec jsonb) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE WHEN spec ?| ARRAY['secrets', 'inputs'] THEN forge_team(of_owner) END
$$;
