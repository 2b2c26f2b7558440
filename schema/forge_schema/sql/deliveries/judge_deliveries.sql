-- Stores the messages of new deliveries; those without one are skipped. A repeat changes nothing.
UPDATE delivery SET
    state = CASE WHEN judged.message IS NULL THEN 'skipped' ELSE 'waiting' END,
    message = judged.message,
    settled_at = CASE WHEN judged.message IS NULL THEN forge_now() END
FROM jsonb_to_recordset(%(judged)s::jsonb) AS judged (id uuid, message jsonb)
WHERE delivery.id = judged.id AND delivery.state = 'new'
RETURNING delivery.id
