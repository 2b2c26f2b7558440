-- Gives turns to jobs that are held in these lines and wait for nothing else, in the order of
-- submission, and lets them go. Returns how many. A cap set for the whole line overrides its jobs'.
-- Of two calls about one line, the second waits for the first and then sees what that one did.
-- A row that another transaction has locked is passed over, since waiting for it could be a
-- deadlock: whoever locks a job that is held in a line gives turns in that line afterwards.
-- Locks: lines in their order, then held.
CREATE OR REPLACE FUNCTION forge_give_turns(lines text[]) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    this text;
    last bigint;
    most integer;
    cap integer;
    taken integer;
    chosen bigint[];
    given integer := 0;
BEGIN
    FOR this IN SELECT DISTINCT unnest(lines) ORDER BY 1 LOOP
        PERFORM pg_advisory_xact_lock(hashtextextended(this, 0));
        taken := (SELECT count(*) FROM turn WHERE line = this);
        cap := (SELECT parallel FROM sweep_cap WHERE line = this);
        chosen := '{}';
        last := 0;
        LOOP
            SELECT job_id, parallel INTO last, most FROM held
            WHERE line = this AND job_id > last AND approval IS NULL
                AND NOT EXISTS (
                    SELECT FROM dependency
                    WHERE dependency.job_id = held.job_id AND dependency.met IS NOT TRUE
                )
            ORDER BY job_id
            LIMIT 1
            FOR UPDATE SKIP LOCKED;
            EXIT WHEN NOT found OR taken >= coalesce(cap, most);
            chosen := chosen || last;
            taken := taken + 1;
        END LOOP;
        IF chosen <> '{}' THEN
            INSERT INTO turn (job_id, line) SELECT unnest(chosen), this ON CONFLICT DO NOTHING;
            PERFORM forge_let_go(chosen);
            given := given + cardinality(chosen);
        END IF;
    END LOOP;
    RETURN given;
END $$;
