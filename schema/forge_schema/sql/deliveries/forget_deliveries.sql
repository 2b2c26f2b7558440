-- Deletes a batch of old deliveries, and of skipped ones whose events are not noticed again.
WITH old AS MATERIALIZED (
    (
        SELECT id FROM delivery
        WHERE settled_at < forge_now() - %(keep)s::interval
        LIMIT %(count)s
    )
    UNION
    (
        SELECT id FROM delivery
        WHERE state = 'skipped'
            AND at < (SELECT noticed_at FROM notifier) - %(late)s::interval
        LIMIT %(count)s
    )
)
DELETE FROM delivery USING old WHERE delivery.id = old.id
RETURNING delivery.id
