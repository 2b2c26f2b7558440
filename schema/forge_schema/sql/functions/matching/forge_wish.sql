-- Which of several wanted models a GPU is, the first as 1; null if it is none.
CREATE OR REPLACE FUNCTION forge_wish(wanted text, name text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT min(n) FROM unnest(string_to_array(wanted, '|')) WITH ORDINALITY AS one (model, n)
    WHERE forge_is_model(model, name)
$$;
