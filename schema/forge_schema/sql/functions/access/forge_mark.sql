-- What stands for an owner or a team in workers' labels, as `owner_mark` makes it.
CREATE OR REPLACE FUNCTION forge_mark(name text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT left(encode(sha256(convert_to(name, 'UTF8')), 'hex'), 12)
$$;
