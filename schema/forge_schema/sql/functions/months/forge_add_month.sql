-- Adds one month's partition to a table. Uses ATTACH, since CREATE … PARTITION OF takes ACCESS
-- EXCLUSIVE on the table. ATTACH takes it only on the default partition, which must hold no row of
-- that month.
CREATE OR REPLACE FUNCTION forge_add_month(parent text, month date) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    part text := parent || to_char(month, '_YYYY_MM');
BEGIN
    EXECUTE format('CREATE TABLE %I (LIKE %I INCLUDING ALL)', part, parent);
    PERFORM forge_attach_month(parent, part, month);
    PERFORM forge_keep_from_truncate(parent, part);
END $$;
