-- The newest worker with a name, including removed ones.
SELECT id
FROM (
    SELECT id FROM worker WHERE name = %(name)s
    UNION ALL
    SELECT id FROM former_worker WHERE name = %(name)s
) AS named
ORDER BY id DESC
LIMIT 1
