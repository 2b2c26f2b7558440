-- Changes those settings of the notifier that are given. The audit trail has no URL.
WITH changed AS (
    UPDATE notifier SET
        smtp_url = CASE WHEN 'smtp_url' = ANY(%(given)s) THEN %(smtp_url)s ELSE smtp_url END,
        sender = CASE WHEN 'sender' = ANY(%(given)s) THEN %(sender)s ELSE sender END,
        allow = CASE WHEN 'allow' = ANY(%(given)s) THEN %(allow)s::text[] ELSE allow END
    RETURNING sender, allow
)
INSERT INTO event (at, actor, action, detail)
SELECT
    forge_now(), %(actor)s, 'notifier_set',
    jsonb_build_object('changed', %(given)s::text[], 'sender', sender, 'allow', allow)
FROM changed
