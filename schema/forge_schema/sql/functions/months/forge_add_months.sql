-- Gives a table its monthly partitions from the month of `since` to `ahead` months after it, and
-- returns how many it created. Rows of the default partition are moved to their months first. If
-- nothing is missing, it takes only a reader's locks.
CREATE OR REPLACE FUNCTION forge_add_months(parent text, since timestamptz, ahead integer)
RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    month date;
    made integer := forge_empty_default(parent);
BEGIN
    FOR month IN
        SELECT date_trunc('month', since AT TIME ZONE 'UTC') + make_interval(months => m)
        FROM generate_series(0, ahead) AS m
    LOOP
        CONTINUE WHEN to_regclass(format('%I', parent || to_char(month, '_YYYY_MM'))) IS NOT NULL;
        PERFORM forge_add_month(parent, month);
        made := made + 1;
    END LOOP;
    RETURN made;
END $$;
