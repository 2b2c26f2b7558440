-- Ends a session: its id is never accepted again. The row is deleted once the session would have
-- expired.
WITH ended AS (
    INSERT INTO request_nonce (key_id, nonce, at)
    VALUES (%(id)s, %(session)s, %(until)s)
    ON CONFLICT DO NOTHING
    RETURNING key_id
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'logout', jsonb_build_object('key', key_id) FROM ended
)
SELECT key_id FROM ended
