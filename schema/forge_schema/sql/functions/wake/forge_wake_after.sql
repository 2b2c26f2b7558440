-- Wakes workers after jobs have ended: for each job of `again`, which is ready again, and for those
-- that may have the slots of limits that the jobs of `ended` gave back. Both have a lane per job;
-- `parts` are those of `again`.
CREATE OR REPLACE FUNCTION forge_wake_after(
    again integer[], ended integer[], parts text[] DEFAULT NULL
) RETURNS void
LANGUAGE sql VOLATILE AS $$
    SELECT forge_wake(again, 'back', parts);
    SELECT forge_wake(forge_waiting(
        ARRAY(
            SELECT DISTINCT other.id
            FROM lane JOIN lane AS other
                ON other.limited AND (other.queue = lane.queue OR other.owner = lane.owner)
            WHERE lane.id = ANY(ended) AND lane.limited
        ),
        cardinality(ended)
    ));
$$;
