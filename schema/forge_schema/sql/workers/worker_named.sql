-- The newest worker of a name, also one that was removed.
SELECT id
FROM (
    SELECT id FROM worker WHERE name = %(name)s
    UNION ALL
    SELECT id FROM former_worker WHERE name = %(name)s
) AS named
ORDER BY id DESC
LIMIT 1
