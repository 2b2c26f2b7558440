-- Whether a worker's labels match every wanted label, each by exact value or by glob.
CREATE OR REPLACE FUNCTION forge_labels_match(wanted jsonb, labels jsonb) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT wanted = '{}'::jsonb OR NOT EXISTS (
        SELECT FROM jsonb_each_text(wanted) AS w (name, pattern)
        WHERE forge_glob(w.pattern, labels ->> w.name) IS NOT TRUE
            -- A secret that every owner may have.
            AND NOT coalesce(labels ->> w.name = '*' AND starts_with(w.name, 'forge.secret.'), false)
    )
$$;
