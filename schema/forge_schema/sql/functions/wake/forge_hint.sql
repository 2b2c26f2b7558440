-- Tells everybody who listens that these workers are to look for jobs, as `kind:workers:snapshot`, in as
-- many notifications as they need; in one if they are none. `seen` is what `forge_seen` returned.
CREATE OR REPLACE FUNCTION forge_hint(kind text, workers bigint[], seen text) RETURNS void
LANGUAGE plpgsql VOLATILE AS $$
BEGIN
    FOR n IN 1..greatest(cardinality(workers), 1) BY 300 LOOP
        PERFORM pg_notify('forge', concat_ws(
            ':', kind, array_to_string(workers[n:n + 299], ','), seen
        ));
    END LOOP;
END $$;
