-- Why nothing is sent for a notification; null while its maker sees the jobs that it covers.
CREATE OR REPLACE FUNCTION forge_why_silent(n notification) RETURNS text
LANGUAGE sql STABLE AS $$
    SELECT CASE
        WHEN n.team IS NOT NULL AND NOT EXISTS (SELECT FROM team WHERE name = n.team)
            THEN 'there is no team ' || n.team || ' any more'
        ELSE coalesce(
            forge_why_withheld(n.actor, n.owner, forge_least_role(n.everyone, n.events)),
            CASE WHEN n.team IS NOT NULL THEN (
                SELECT maker.who || ', which made it, does not see the team ' || n.team
                FROM (
                    SELECT 'the key ' || id || ' of ' || owner AS who, team
                    FROM api_key
                    WHERE n.actor = 'key:' || id AND role <> 'admin' AND NOT everyone
                    UNION ALL
                    SELECT 'the login of ' || owner, forge_team(owner)
                    FROM standing
                    WHERE actor = n.actor AND role <> 'admin'
                ) AS maker
                WHERE maker.team IS DISTINCT FROM n.team
            ) END
        )
    END
$$;
