-- Whether the limits of a lane leave room for one of its jobs once some others have left.
CREATE OR REPLACE FUNCTION forge_room_without(of_lane integer, jobs bigint[]) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    bound record;
BEGIN
    FOR bound IN SELECT * FROM forge_limits_of(of_lane) LOOP
        IF forge_free_slots(bound.kind, bound.name, bound.most, bound.slots) + (
            SELECT count(*) FROM slot
            WHERE slot.kind = bound.kind AND slot.name = bound.name AND slot.n <= bound.most
                AND slot.job_id = ANY(jobs)
        ) < bound.slots THEN
            RETURN false;
        END IF;
    END LOOP;
    RETURN true;
END $$;
