-- How long a job that failed is kept for workers other than those that it `avoids`.
CREATE OR REPLACE FUNCTION forge_avoidance() RETURNS interval
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$ SELECT interval '15 s' $$;
