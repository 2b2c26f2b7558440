-- Makes a team unless there is one of the name; some owners `join` it, whatever team they are in,
-- some `leave` it, and it gets those of its limits that are `given`. `by_issuer` is whether single
-- sign-on says so. Idempotent but for the event of limits. Returns whom it concerns: who was in the team, and who is now.
-- Locks: team, then owner_quota, then api_key; valid only after `lock_owners`, in the same transaction.
WITH made AS (
    INSERT INTO team (
        name, created_at, max_jobs, max_gpus, guaranteed_gpus, gpu_hours_per_month, cost_per_month,
        when_spent
    )
    VALUES (
        %(name)s, forge_now(), %(max_jobs)s, %(max_gpus)s, %(guaranteed_gpus)s,
        %(gpu_hours_per_month)s, %(cost_per_month)s, %(when_spent)s
    )
    ON CONFLICT (name) DO UPDATE
        SET (
            max_jobs, max_gpus, guaranteed_gpus, gpu_hours_per_month, cost_per_month, when_spent
        ) = (
            SELECT
                max_jobs, max_gpus, guaranteed_gpus, gpu_hours_per_month, cost_per_month, when_spent
            FROM jsonb_populate_record(team, %(given)s)
        )
    RETURNING *, xmax = 0 AS is_new
),
before AS MATERIALIZED (
    SELECT owner, by_issuer FROM owner_quota WHERE team = %(name)s
),
joined AS (
    INSERT INTO owner_quota (owner, team, by_issuer)
    SELECT DISTINCT wanted.owner, %(name)s, %(by_issuer)s::boolean
    FROM unnest(%(join)s::text[]) AS wanted (owner)
    WHERE wanted.owner NOT IN (SELECT owner FROM before WHERE by_issuer = %(by_issuer)s)
    ON CONFLICT (owner) DO UPDATE SET team = excluded.team, by_issuer = excluded.by_issuer
    RETURNING owner
),
gone AS (
    UPDATE owner_quota SET team = NULL, by_issuer = false
    FROM before
    WHERE owner_quota.owner = before.owner AND before.owner = ANY(%(leave)s::text[])
    RETURNING owner_quota.owner
),
-- Who leaves a team, or is moved out of one, sees it no more. Whom an admin moves sees the new one
-- with the keys that saw the old one; what single sign-on says moves people, not keys.
followed AS (
    UPDATE api_key
    SET team = CASE WHEN former.team <> %(name)s AND NOT %(by_issuer)s::boolean THEN %(name)s END
    FROM owner_quota AS former
    WHERE former.owner = api_key.owner AND former.team = api_key.team
        AND former.owner = ANY(
            CASE WHEN former.team = %(name)s THEN %(leave)s ELSE %(join)s END::text[]
        )
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        forge_now(), %(actor)s, 'team set',
        jsonb_build_object(
            'team', made.name, 'joined', array(SELECT owner FROM joined),
            'left', array(SELECT owner FROM gone), 'moved_from', (
                SELECT jsonb_object_agg(owner, team) FROM owner_quota
                WHERE owner = ANY(%(join)s::text[]) AND team <> %(name)s
            ), 'max_jobs', max_jobs, 'max_gpus', max_gpus,
            'guaranteed_gpus', guaranteed_gpus, 'gpu_hours_per_month', gpu_hours_per_month,
            'cost_per_month', cost_per_month, 'when_spent', when_spent
        )
    FROM made
    WHERE made.is_new OR %(given)s::jsonb <> '{}'
        OR EXISTS (SELECT FROM joined) OR EXISTS (SELECT FROM gone)
)
SELECT owner FROM before
UNION
SELECT owner FROM joined
