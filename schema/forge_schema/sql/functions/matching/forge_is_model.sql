-- Whether a GPU is of a wanted model, or of one of several with | between them: globs of * and ?,
-- ignoring case. The vendor's name may be left out.
CREATE OR REPLACE FUNCTION forge_is_model(wanted text, name text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT lower(name) LIKE ANY (string_to_array(
        translate(
            replace(replace(replace(
                lower(wanted) || replace('|' || lower(wanted), '|', '|* '),
                '\', '\\'), '%', '\%'), '_', '\_'),
            '*?', '%_'
        ),
        '|'
    ))
$$;
