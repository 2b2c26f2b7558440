-- Whether a value matches a glob of * and ?, ignoring case.
CREATE OR REPLACE FUNCTION forge_glob(pattern text, value text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT lower(value) LIKE translate(
        replace(replace(replace(lower(pattern), '\', '\\'), '%', '\%'), '_', '\_'), '*?', '%_'
    )
$$;
