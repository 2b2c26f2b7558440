-- Whether a worker's labels match every wanted label, each by exact value or by glob. A worker that does
-- not say that it is a spot machine is none. Two wishes of a shape are no labels: `forge_affords` and `forge_leaves` look at them.
CREATE OR REPLACE FUNCTION forge_labels_match(wanted jsonb, labels jsonb) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT wanted = '{}'::jsonb OR NOT EXISTS (
        SELECT FROM jsonb_each_text(wanted) AS w (name, pattern)
        WHERE forge_glob(
                w.pattern,
                coalesce(labels ->> w.name, CASE w.name WHEN 'forge.spot' THEN 'no' END)
            ) IS NOT TRUE
            -- A secret that every owner may have, or the owner's team.
            AND NOT coalesce(
                starts_with(w.name, 'forge.secret.') AND (
                    labels ->> w.name = '*'
                    OR forge_is_of_team(labels ->> w.name, btrim(w.pattern, '*,'))
                ),
                false
            )
            AND w.name NOT IN ('forge.max_price', 'forge.prefers_spot')
    )
$$;
