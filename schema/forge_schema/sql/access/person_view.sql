-- What a person of an issuer sees with an owner's name: the owner's team and its other owners. It is
-- `misplaced` if the issuer `said` another team, and no admin put the owner into this one; nor does
-- the issuer say it of another person with the same owner, later or as long ago as a session lasts, or
-- two people would take turns. A team that there is not is none; its name is `unknown` then.
SELECT
    o.team, forge_others(who.owner, o.team, false) AS others, t.name AS said,
    forge_placed(who.owner) AS placed,
    CASE WHEN t.name IS NULL THEN s.team END AS unknown,
    s.actor IS NOT NULL AND t.name IS DISTINCT FROM o.team AND (o.team IS NULL OR o.by_issuer)
    AND NOT EXISTS (
        SELECT FROM standing AS another
        WHERE another.owner = who.owner AND another.team = o.team
            AND (another.ended_at IS NULL OR another.ended_at < another.at)
            AND another.at > least(s.at, forge_now() - interval '12 hours')
    ) AS misplaced
FROM (SELECT %(owner)s::text AS owner) AS who
LEFT JOIN owner_quota AS o ON o.owner = who.owner
LEFT JOIN standing AS s ON s.actor = %(actor)s AND s.owner = who.owner
LEFT JOIN team AS t ON t.name = s.team
