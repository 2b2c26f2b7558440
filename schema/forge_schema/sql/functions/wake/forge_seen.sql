-- What a notification says of the statement's snapshot. A notification is shorter than 8,000 bytes.
CREATE OR REPLACE FUNCTION forge_seen() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN length(pg_current_snapshot()::text) <= 1000 THEN pg_current_snapshot()::text
        ELSE format('%1$s:%1$s:', split_part(pg_current_snapshot()::text, ':', 1))
    END
$$;
