-- Notes what an issuer says of a person, unless it is older than what is known. A repeat within a
-- minute writes nothing, so that a busy person does not become a hot row.
INSERT INTO standing (actor, owner, role, at)
VALUES (
    %(actor)s, %(owner)s, %(role)s,
    least(forge_now(), coalesce(to_timestamp(%(issued)s::double precision), forge_now()))
)
ON CONFLICT (actor) DO UPDATE
SET owner = excluded.owner, role = excluded.role, at = excluded.at
WHERE excluded.at > standing.at + interval '1 minute'
    OR (excluded.at > standing.ended_at AND standing.ended_at >= standing.at)
    OR (
        excluded.at >= standing.at
        AND (excluded.owner, excluded.role) <> (standing.owner, standing.role)
    )
