-- The worker that somebody with these labels enrolled as, and nobody else's of that name.
SELECT id FROM worker
WHERE name = %(name)s AND kind = 'ephemeral' AND token_hash IS NOT NULL
    AND pinned_labels = %(labels)s
