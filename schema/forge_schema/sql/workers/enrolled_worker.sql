-- The worker that enrolled under this name with these labels.
SELECT id FROM worker
WHERE name = %(name)s AND kind = 'ephemeral' AND token_hash IS NOT NULL
    AND pinned_labels = %(labels)s
