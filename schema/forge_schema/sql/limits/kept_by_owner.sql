-- How many things of a kind an owner keeps, beside the one with this name, and their bytes. Of keys,
-- those that are valid.
SELECT count(*) AS others, coalesce(sum(size), 0) AS bytes
FROM (
    SELECT name, 0 AS size FROM notification
    WHERE owner = %(owner)s AND %(kind)s = 'notification'
    UNION ALL
    SELECT name, octet_length(spec::text) FROM schedule
    WHERE owner = %(owner)s AND %(kind)s = 'schedule'
    UNION ALL
    SELECT name, octet_length(spec::text) FROM template
    WHERE owner = %(owner)s AND %(kind)s = 'template'
    UNION ALL
    SELECT name, 0 FROM registered_input
    WHERE owner = %(owner)s AND %(kind)s = 'input'
    UNION ALL
    SELECT id, 0 FROM api_key
    WHERE owner = %(owner)s AND %(kind)s = 'key' AND acts_for IS NULL AND revoked_at IS NULL
        AND (expires_at IS NULL OR expires_at > forge_now())
) AS kept
WHERE name <> %(name)s
