-- Removes a team. Its owners, which are returned, are in none then, and its keys see only their own
-- owner's jobs.
-- Locks: team, then owner_quota; valid only after `lock_owners`, in the same transaction.
WITH its AS MATERIALIZED (
    SELECT team.name, array(SELECT owner FROM owner_quota WHERE team = team.name) AS owners
    FROM team WHERE name = %(name)s
    FOR UPDATE
),
gone AS (
    DELETE FROM team USING its WHERE team.name = its.name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'team removed', jsonb_build_object('team', name) FROM its
)
SELECT owners FROM its
