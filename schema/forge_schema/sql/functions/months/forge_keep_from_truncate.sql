-- Refuses TRUNCATE of a partition as of its table; partitions inherit only row-level triggers.
CREATE OR REPLACE FUNCTION forge_keep_from_truncate(parent text, part text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    IF parent IN ('attempt_row', 'event') THEN
        EXECUTE format(
            'CREATE TRIGGER %I BEFORE TRUNCATE ON %I'
            ' FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change()',
            parent || '_no_truncate', part
        );
    END IF;
END $$;
