-- Takes a slot of each limit that a job is under, or none if a limit has too few; a job on several
-- `machines` takes those of the GPUs of all. Slots that other claims are taking right now count as
-- taken.
-- Locks: slot, skipping locked.
CREATE OR REPLACE FUNCTION forge_take_slots(
    lane_id integer, claimed bigint, machines integer DEFAULT NULL
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    bound record;
    above bigint;
    got bigint;
BEGIN
    FOR bound IN SELECT * FROM forge_limits_of(lane_id, machines) LOOP
        SELECT count(*) INTO above FROM slot
        WHERE kind = bound.kind AND name = bound.name AND n > bound.most AND job_id IS NOT NULL;
        IF above > 0 THEN
            -- Slots are free although the limit may be reached: only one claim at a time may count.
            PERFORM FROM slot
            WHERE kind = bound.kind AND name = bound.name AND n > bound.most AND job_id IS NOT NULL
            FOR UPDATE SKIP LOCKED;
            GET DIAGNOSTICS got = ROW_COUNT;
        END IF;
        IF above > 0 AND (
            got < above
            OR forge_free_slots(bound.kind, bound.name, bound.most, bound.slots) < bound.slots
        ) THEN
            got := 0;
        ELSE
            UPDATE slot SET job_id = claimed
            WHERE kind = bound.kind AND name = bound.name AND n = ANY(ARRAY(
                SELECT n FROM slot
                WHERE kind = bound.kind AND name = bound.name AND n <= bound.most AND job_id IS NULL
                ORDER BY n
                LIMIT bound.slots
                FOR UPDATE SKIP LOCKED
            ));
            GET DIAGNOSTICS got = ROW_COUNT;
        END IF;
        IF got < bound.slots THEN
            UPDATE slot SET job_id = NULL WHERE job_id = claimed;
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;
