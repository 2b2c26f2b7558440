-- How many things of a kind an owner keeps, beside the one with this name.
SELECT count(*) AS others
FROM (
    SELECT name FROM notification WHERE owner = %(owner)s AND %(kind)s = 'notification'
    UNION ALL
    SELECT name FROM schedule WHERE owner = %(owner)s AND %(kind)s = 'schedule'
    UNION ALL
    SELECT name FROM template WHERE owner = %(owner)s AND %(kind)s = 'template'
) AS kept
WHERE name <> %(name)s
