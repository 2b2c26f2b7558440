-- Makes a team unless there is one of the name; some owners `join` it, whatever team they are in, and
-- some `leave` it. Idempotent: a repeated call leaves no event.
-- Locks: team, then owner_quota by owner.
WITH made AS (
    INSERT INTO team (name, created_at) VALUES (%(name)s, forge_now())
    ON CONFLICT DO NOTHING
    RETURNING name
),
joined AS (
    INSERT INTO owner_quota (owner, team)
    SELECT owner, %(name)s FROM unnest(%(join)s::text[]) AS new (owner) ORDER BY owner
    ON CONFLICT (owner) DO UPDATE SET team = excluded.team
    WHERE owner_quota.team IS DISTINCT FROM excluded.team
    RETURNING owner
),
gone AS (
    UPDATE owner_quota SET team = NULL
    WHERE team = %(name)s AND owner = ANY(%(leave)s::text[])
    RETURNING owner
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'team set',
        jsonb_build_object(
            'team', %(name)s::text, 'joined', array(SELECT owner FROM joined),
            'left', array(SELECT owner FROM gone)
        )
    WHERE EXISTS (SELECT FROM made) OR EXISTS (SELECT FROM joined) OR EXISTS (SELECT FROM gone)
)
SELECT 1 AS done
