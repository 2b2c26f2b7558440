-- Jobs by id as groups of an experiment, a sweep, an owner or a team, the group of the newest job first.
WITH run AS (
    SELECT
        CASE %(by)s::text
            WHEN 'experiment' THEN experiment WHEN 'sweep' THEN sweep
            WHEN 'team' THEN forge_team(owner) ELSE owner
        END AS name,
        job_id, state, seconds, cost, submitted_at
    FROM runs WHERE job_id = ANY(%(job_ids)s::bigint[])
),
by_state AS (
    SELECT
        name, state, count(*) AS runs, sum(seconds) AS seconds, sum(cost) AS cost,
        max(job_id) AS newest, min(submitted_at) AS first_submitted_at,
        max(submitted_at) AS submitted_at
    FROM run WHERE name IS NOT NULL GROUP BY name, state
)
SELECT
    name, sum(runs)::integer AS runs, jsonb_object_agg(state, runs) AS states,
    sum(seconds) AS seconds, sum(cost) AS cost, min(first_submitted_at) AS first_submitted_at,
    max(submitted_at) AS submitted_at
FROM by_state GROUP BY name ORDER BY max(newest) DESC
