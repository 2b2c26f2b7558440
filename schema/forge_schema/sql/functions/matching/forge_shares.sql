-- Each owner's share, as an object: who has the smallest goes first. It is the number of GPUs held
-- now, divided by the weight, and corrected by how far the owner is ahead: a lead of 15 minutes'
-- GPU time counts like a GPU. An owner who is behind catches up at less than twice the usual pace.
-- The owners are looked up one by one. An owner who is not in it has 0.
CREATE OR REPLACE FUNCTION forge_shares(owners text[]) RETURNS jsonb
LANGUAGE sql STABLE AS $$
    WITH held AS MATERIALIZED (SELECT forge_held_by_owner() AS by_owner)
    SELECT coalesce(
        jsonb_object_agg(
            o.owner,
            coalesce((held.by_owner ->> o.owner)::float8, 0) / o.weight
            + had.lead / (900 + coalesce(greatest(-had.lead, 0) / nullif(s.pace, 0), 0))
        ),
        '{}'
    )
    FROM held
    CROSS JOIN sweeper AS s
    CROSS JOIN (SELECT DISTINCT unnest(owners) AS owner) AS these
    JOIN owner_quota AS o ON o.owner = these.owner
    LEFT JOIN owner_usage AS u ON u.owner = these.owner
    CROSS JOIN LATERAL (
        SELECT forge_lead(u.level - s.level, s.counted_at - u.at, s.pace) AS lead
    ) AS had
$$;
