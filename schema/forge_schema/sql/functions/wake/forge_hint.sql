-- Tells everybody who listens that these workers are to look for jobs, as `kind:workers:snapshot`, in as
-- many notifications as they need; in one if they are none. `seen` is the snapshot.
CREATE OR REPLACE FUNCTION forge_hint(kind text, workers bigint[], seen text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    -- A notification is shorter than 8,000 bytes.
    IF length(seen) > 1000 THEN
        seen := format('%1$s:%1$s:', split_part(seen, ':', 1));
    END IF;
    FOR n IN 1..greatest(cardinality(workers), 1) BY 300 LOOP
        PERFORM pg_notify('forge', concat_ws(
            ':', kind, array_to_string(workers[n:n + 299], ','), seen
        ));
    END LOOP;
END $$;
