-- Why something that an actor made for an owner does not go on; null while the actor has at least a
-- role, and sees the owner's jobs. A session counts as the key or the person that it acts for. Of a
-- person, Forge knows what the issuer said last: that counts for 30 days, and while a session lasts.
-- Who acts in the database itself may do anything.
CREATE OR REPLACE FUNCTION forge_why_withheld(of_actor text, of_owner text, needed text)
RETURNS text
LANGUAGE sql STABLE AS $$
    WITH ranks AS (SELECT ARRAY['viewer', 'submitter', 'admin'] AS rank),
    maker AS (
        SELECT
            'the key ' || id || ' of ' || owner AS who, owner, role,
            CASE
                WHEN revoked_at IS NOT NULL THEN 'was revoked'
                WHEN expires_at <= forge_now() THEN 'has expired'
            END AS gone
        FROM api_key
        WHERE starts_with(of_actor, 'key:') AND id = substr(of_actor, 5)
        UNION ALL
        SELECT
            'the login of ' || owner, owner, role,
            CASE
                WHEN EXISTS (
                    SELECT FROM api_key
                    WHERE acts_for = of_actor AND revoked_at IS NULL AND expires_at > forge_now()
                ) THEN NULL
                WHEN ended_at >= at THEN 'has ended'
                WHEN at <= forge_now() - interval '30 days' THEN 'is older than 30 days'
            END
        FROM standing
        WHERE actor = of_actor
    )
    SELECT CASE
        WHEN starts_with(of_actor, 'user:') THEN NULL
        WHEN maker.who IS NULL THEN 'its maker is not known here'
        WHEN maker.gone IS NOT NULL THEN maker.who || ', which made it, ' || maker.gone
        WHEN array_position(rank, maker.role) < array_position(rank, needed)
            THEN maker.who || ', which made it, has the role ' || maker.role
                || ' now, and it needs ' || needed
        WHEN maker.role <> 'admin' AND maker.owner <> of_owner
            THEN maker.who || ', which made it, does not see jobs of ' || of_owner
    END
    FROM ranks LEFT JOIN maker ON true
$$;
