-- Makes a table the partition of one month, in UTC.
CREATE OR REPLACE FUNCTION forge_attach_month(parent text, part text, month date) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format(
        'ALTER TABLE %I ATTACH PARTITION %I FOR VALUES FROM (%L) TO (%L)', parent, part,
        month::text || ' 00:00+00', (month + interval '1 month')::date::text || ' 00:00+00'
    );
END $$;
