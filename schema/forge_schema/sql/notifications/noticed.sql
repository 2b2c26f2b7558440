-- From when on to look for events, and until when; no row if nobody is to be told of any. What was
-- written late is found by looking back a little; after a long time without a sweeper, only what
-- is not `longest` ago is still told.
SELECT
    greatest(
        min(notification.created_at),
        forge_now() - %(longest)s::interval,
        least(coalesce(notifier.noticed_at, '-infinity'), forge_now()) - %(late)s::interval
    ) AS since,
    forge_now() AS until
FROM notification CROSS JOIN notifier
GROUP BY notifier.noticed_at
