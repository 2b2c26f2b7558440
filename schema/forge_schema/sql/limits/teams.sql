-- Every team with its owners, by name; or the one of a name.
SELECT
    team.name,
    ARRAY(SELECT owner FROM owner_quota AS o WHERE o.team = team.name ORDER BY owner) AS owners
FROM team
WHERE %(name)s::text IS NULL OR team.name = %(name)s
ORDER BY team.name
