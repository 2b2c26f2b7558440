-- Whether an owner's team has a limit. Volatile, so that it sees rows committed after its statement
-- began, by a change of the team that the statement had to wait for.
CREATE OR REPLACE FUNCTION forge_team_limits(of_team text) RETURNS boolean
LANGUAGE sql VOLATILE AS $$
    SELECT EXISTS (
        SELECT FROM team WHERE name = of_team AND num_nonnulls(max_jobs, max_gpus) > 0
    )
$$;
