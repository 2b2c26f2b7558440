-- The limits whose slots differ from what they should be, and how many slots those should have.
CREATE OR REPLACE FUNCTION forge_uneven_limits()
RETURNS TABLE (kind text, name text, slots integer)
LANGUAGE sql STABLE AS $$
    SELECT tally.kind, tally.name, sum(tally.due)::integer
    FROM (
        SELECT one.kind, one.name, sum(one.due) AS due, sum(one.due) <> sum(one.found) AS uneven
        FROM (
            SELECT due.kind, due.name, due.job_id, 1 AS due, 0 AS found FROM forge_due_slots() AS due
            UNION ALL
            SELECT slot.kind, slot.name, slot.job_id, 0, 1 FROM slot
        ) AS one
        GROUP BY one.kind, one.name, one.job_id
    ) AS tally
    GROUP BY tally.kind, tally.name
    HAVING bool_or(tally.uneven)
$$;
