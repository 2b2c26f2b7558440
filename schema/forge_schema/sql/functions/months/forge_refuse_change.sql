-- The history and the audit trail are append-only, even for their owner.
CREATE OR REPLACE FUNCTION forge_refuse_change() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'insufficient_privilege';
END $$;
