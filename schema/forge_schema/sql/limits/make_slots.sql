-- Makes the slots of every limit what they should be. Valid only after `lock_slots`, in the same
-- transaction. Wakes workers if a limit changed, since there may be room for more jobs now.
WITH uneven AS MATERIALIZED (SELECT * FROM forge_uneven_limits()),
gone AS (
    DELETE FROM slot USING uneven
    WHERE slot.kind = uneven.kind AND slot.name = uneven.name AND slot.n > uneven.slots
),
made AS (
    INSERT INTO slot (kind, name, n, job_id)
    SELECT due.kind, due.name, due.n, due.job_id
    FROM uneven JOIN forge_due_slots() AS due USING (kind, name)
    ON CONFLICT (kind, name, n) DO UPDATE SET job_id = excluded.job_id
)
SELECT forge_wake(forge_waiting(
    ARRAY(
        SELECT lane.id FROM uneven JOIN lane
            ON (uneven.kind LIKE 'queue%%' AND lane.queue = uneven.name)
            OR (uneven.kind LIKE 'owner%%' AND lane.owner = uneven.name)
            OR (uneven.kind LIKE 'team%%' AND forge_team(lane.owner) = uneven.name)
    ),
    1000
))
