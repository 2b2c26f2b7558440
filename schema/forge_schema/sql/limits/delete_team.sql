-- Removes a team. Its owners are in none then, and its keys see only their own owner's jobs.
WITH gone AS (
    DELETE FROM team WHERE name = %(name)s RETURNING name
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'team removed', jsonb_build_object('team', name) FROM gone
)
SELECT name FROM gone
