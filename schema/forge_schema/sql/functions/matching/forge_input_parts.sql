-- The hashes of the inputs that a worker has to fetch for a job, in the order of their sources.
CREATE OR REPLACE FUNCTION forge_input_parts(owner text, inputs jsonb) RETURNS integer[]
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT ARRAY(
        SELECT hashtext('input ' || input.source || ' ' || owner)
        FROM jsonb_each_text(inputs) AS input (name, source)
        WHERE input.source NOT LIKE 'folder:%'
        ORDER BY input.source COLLATE "C"
    )
$$;
