-- Whether a secret's label has the mark of the team that an owner, named by a mark too, is in now.
-- The marks are those of `owner_mark`; a team's has an @ before it.
CREATE OR REPLACE FUNCTION forge_is_of_team(label text, owner_mark text) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT strpos(label, '@') > 0 AND EXISTS (
        SELECT FROM owner_quota
        WHERE strpos(label, ',@' || forge_mark(team) || ',') > 0
            AND forge_mark(owner) = owner_mark
    )
$$;
