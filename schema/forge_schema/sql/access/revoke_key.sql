-- Revokes an API key, or ends a session: with one of a person, also what the person made no longer
-- goes on, until the next login, unless the person did it. Idempotent: a repeat leaves no event.
WITH before AS MATERIALIZED (
    SELECT id, revoked_at FROM api_key WHERE id = %(id)s FOR UPDATE
),
revoked AS (
    UPDATE api_key SET revoked_at = forge_now()
    FROM before
    WHERE api_key.id = before.id AND before.revoked_at IS NULL
    RETURNING api_key.id, api_key.acts_for
),
ended AS (
    UPDATE standing SET ended_at = forge_now()
    FROM revoked
    WHERE standing.actor = revoked.acts_for AND standing.actor <> %(actor)s
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'key_revoked', jsonb_build_object('key', id) FROM revoked
)
SELECT id FROM before
