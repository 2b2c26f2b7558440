-- Creates a worker that has not connected yet; until then its labels are those pinned here. A
-- repeated call finds its own row by id and hash.
WITH made AS (
    INSERT INTO worker (
        id, name, boot_id, kind, cpus, memory_mb, disk_mb, labels, pinned_labels, token_hash,
        token_expires_at, public_key, registered_at, last_seen_at
    )
    VALUES (
        %(id)s, %(name)s, '00000000-0000-0000-0000-000000000000', %(kind)s, 0, 0, 0, %(labels)s,
        %(labels)s, %(hash)s, forge_now() + %(lasts)s::interval, %(public_key)s, forge_now(), forge_now()
    )
    ON CONFLICT DO NOTHING
    RETURNING id
),
told AS (
    INSERT INTO event (at, actor, action, worker_id, detail)
    SELECT
        forge_now(), %(actor)s, 'worker_created', id,
        jsonb_build_object(
            'name', %(name)s::text, 'kind', %(kind)s::text, 'signs', %(public_key)s IS NOT NULL
        )
    FROM made
)
SELECT id FROM made
UNION
SELECT id FROM worker WHERE id = %(id)s AND token_hash = %(hash)s
