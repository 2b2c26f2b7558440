-- Whether jobs of a lane count for what is guaranteed to a queue, owner or team.
CREATE OR REPLACE FUNCTION forge_counts_for(its_lane lane, kind text, name text) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT name IS NOT DISTINCT FROM CASE kind
        WHEN 'queue' THEN its_lane.queue
        WHEN 'owner' THEN its_lane.owner
        ELSE forge_team(its_lane.owner)
    END
$$;
