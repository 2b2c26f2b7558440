-- Sets how many jobs of an owner's sweep may have a turn at once, and gives the turns that this
-- frees; none is taken away. Idempotent. Nothing is returned if no job of the sweep has a cap.
-- Locks: the row of sweep_cap, then the line, then held.
WITH line AS MATERIALIZED (
    SELECT owner || '/' || sweep AS name FROM job
    WHERE owner = %(owner)s AND sweep = %(sweep)s AND spec ? 'parallel'
    LIMIT 1
),
changed AS (
    INSERT INTO sweep_cap (line, parallel)
    SELECT name, %(parallel)s FROM line
    ON CONFLICT (line) DO UPDATE SET parallel = excluded.parallel
        WHERE sweep_cap.parallel <> excluded.parallel
    RETURNING parallel
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'sweep parallel set',
        jsonb_build_object(
            'owner', %(owner)s::text, 'sweep', %(sweep)s::text, 'parallel', parallel
        )
    FROM changed
)
-- The count has the cap stored first.
SELECT forge_give_turns(ARRAY[name]) AS given FROM line WHERE (SELECT count(*) FROM changed) >= 0
