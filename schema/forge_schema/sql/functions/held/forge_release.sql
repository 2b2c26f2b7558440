-- Looks at held jobs again: ends those with a failed dependency, and then those that wait for them,
-- and lets those go that wait for nothing any more. After 10,000 jobs it stops; the sweeper
-- releases the rest. Last, it gives turns in these lines and in those of the jobs it looked at.
-- Of two calls about one job, the second waits for the first and then sees what that one settled.
-- Locks: held in the order of job ids, then lines.
CREATE OR REPLACE FUNCTION forge_release(waiting bigint[], lines text[] DEFAULT '{}')
RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    looked integer := 0;
BEGIN
    WHILE waiting <> '{}' AND looked < 10000 LOOP
        waiting := ARRAY(
            SELECT held.job_id FROM unnest(waiting) AS held_job (id)
            JOIN held ON held.job_id = held_job.id
            ORDER BY held.job_id
            FOR UPDATE OF held
        );
        looked := looked + cardinality(waiting);
        lines := lines || ARRAY(
            SELECT DISTINCT held.line FROM unnest(waiting) AS held_job (id)
            JOIN held ON held.job_id = held_job.id
            WHERE held.line IS NOT NULL
        );
        PERFORM forge_settle(waiting);
        PERFORM forge_let_go(waiting);
        waiting := forge_dependents(forge_end_failed(waiting));
    END LOOP;
    IF lines <> '{}' THEN
        PERFORM forge_give_turns(lines);
    END IF;
    RETURN looked;
END $$;
