-- The other owners whose jobs a key of an owner sees, by its `team` or `everyone`; null means all.
CREATE OR REPLACE FUNCTION forge_others(of_owner text, of_team text, everyone boolean)
RETURNS text[]
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN everyone THEN NULL
        WHEN of_team IS NULL THEN '{}'
        ELSE ARRAY(
            SELECT owner FROM owner_quota WHERE team = of_team AND owner <> of_owner ORDER BY owner
        )
    END
$$;
