-- What a person of an issuer sees with an owner's name: the owner's team and its other owners. It is
-- `misplaced` if the issuer said another team, and no admin put the owner into this one; nor does the
-- issuer say it of another person with the same owner, or two people would take turns.
SELECT
    o.team, forge_others(who.owner, o.team, false) AS others, s.team AS said,
    s.actor IS NOT NULL AND s.team IS DISTINCT FROM o.team AND (o.team IS NULL OR o.by_issuer)
    AND NOT EXISTS (
        SELECT FROM standing AS another
        WHERE another.owner = who.owner AND another.team = o.team
            AND (another.ended_at IS NULL OR another.ended_at < another.at)
            AND another.at > forge_now() - interval '30 days'
    ) AS misplaced
FROM (SELECT %(owner)s::text AS owner) AS who
LEFT JOIN owner_quota AS o ON o.owner = who.owner
LEFT JOIN standing AS s ON s.actor = %(actor)s AND s.owner = who.owner
