-- Makes the monthly partitions from the month of `since` to `ahead` months after it.
CREATE OR REPLACE FUNCTION forge_make_partitions(since timestamptz, ahead integer) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    parent text;
    lower_bound date;
    made integer := 0;
BEGIN
    FOREACH parent IN ARRAY ARRAY['attempt', 'event', 'metric', 'sample'] LOOP
        FOR lower_bound IN
            SELECT (date_trunc('month', since AT TIME ZONE 'UTC') + make_interval(months => m))::date
            FROM generate_series(0, ahead) AS m
        LOOP
            CONTINUE WHEN to_regclass(format('%I', parent || to_char(lower_bound, '_YYYY_MM'))) IS NOT NULL;
            BEGIN
                EXECUTE format(
                    'CREATE TABLE %I PARTITION OF %I FOR VALUES FROM (%L) TO (%L)',
                    parent || to_char(lower_bound, '_YYYY_MM'), parent,
                    lower_bound::text || ' 00:00+00',
                    (lower_bound + interval '1 month')::date::text || ' 00:00+00'
                );
                IF parent IN ('attempt', 'event') THEN
                    EXECUTE format(
                        'CREATE TRIGGER %I BEFORE TRUNCATE ON %I'
                        ' FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change()',
                        parent || '_no_truncate', parent || to_char(lower_bound, '_YYYY_MM')
                    );
                END IF;
                made := made + 1;
            EXCEPTION WHEN check_violation OR duplicate_table THEN
                -- The default partition holds rows of that month already, or another made it.
                NULL;
            END;
        END LOOP;
    END LOOP;
    RETURN made;
END $$;
