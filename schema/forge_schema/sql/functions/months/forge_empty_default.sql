-- Moves the rows of a table's default partition to their months, and returns how many partitions
-- that created. The default partition itself becomes the last of these months, usually the only
-- one, so that its rows are read but not copied.
-- Locks: if there is a row, the table, ACCESS EXCLUSIVE.
CREATE OR REPLACE FUNCTION forge_empty_default(parent text) RETURNS integer
LANGUAGE plpgsql AS $$
DECLARE
    loose text := parent || '_default';
    moment text := CASE parent WHEN 'attempt_row' THEN 'finished_at' ELSE 'at' END;
    holds boolean;
    months date[];
    last date;
    part text;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %I)', loose) INTO holds;
    IF NOT holds THEN
        RETURN 0;
    END IF;
    EXECUTE format('LOCK TABLE ONLY %I IN ACCESS EXCLUSIVE MODE', parent);
    EXECUTE format(
        'SELECT ARRAY(SELECT DISTINCT date_trunc(''month'', %I AT TIME ZONE ''UTC'')::date'
        ' FROM %I ORDER BY 1)', moment, loose
    ) INTO months;
    last := months[cardinality(months)];
    part := parent || to_char(last, '_YYYY_MM');
    EXECUTE format('ALTER TABLE %I DETACH PARTITION %I', parent, loose);
    EXECUTE format('ALTER TABLE %I RENAME TO %I', loose, part);
    EXECUTE format('CREATE TABLE %I PARTITION OF %I DEFAULT', loose, parent);
    PERFORM forge_keep_from_truncate(parent, loose);
    PERFORM forge_add_month(parent, month) FROM unnest(months) AS month WHERE month < last;
    EXECUTE format(
        'WITH moved AS (DELETE FROM %I WHERE %I < %L RETURNING *) INSERT INTO %I SELECT * FROM moved',
        part, moment, last::text || ' 00:00+00', parent
    );
    PERFORM forge_attach_month(parent, part, last);
    RETURN cardinality(months);
END $$;
