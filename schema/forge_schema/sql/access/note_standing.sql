-- Notes what an issuer says of a person, unless it is older than what is known. Where it `says_team`,
-- null is no team; else the team stays. A repeat within a minute writes nothing, so that a busy person
-- does not become a hot row. Returns whether it wrote.
INSERT INTO standing (actor, owner, role, team, at)
VALUES (
    %(actor)s, %(owner)s, %(role)s, %(team)s,
    least(forge_now(), coalesce(to_timestamp(%(issued)s::double precision), forge_now()))
)
ON CONFLICT (actor) DO UPDATE
SET owner = excluded.owner, role = excluded.role, at = excluded.at,
    team = CASE WHEN %(says_team)s::boolean THEN excluded.team ELSE standing.team END
WHERE excluded.at > standing.at + interval '1 minute'
    OR (excluded.at > standing.ended_at AND standing.ended_at >= standing.at)
    OR (
        excluded.at >= standing.at
        AND (
            (excluded.owner, excluded.role) <> (standing.owner, standing.role)
            OR (%(says_team)s::boolean AND excluded.team IS DISTINCT FROM standing.team)
        )
    )
RETURNING true AS noted
