-- How many more jobs of a lane its limits allow, counted up to `enough`. Volatile, so that it sees
-- the slots that the calling statement itself has given back; `after` is whatever gave them back.
CREATE OR REPLACE FUNCTION forge_room(lane_id integer, enough bigint, after bigint DEFAULT 0)
RETURNS bigint
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    room bigint := enough;
    bound record;
BEGIN
    FOR bound IN SELECT * FROM forge_limits_of(lane_id) LOOP
        room := least(
            room, forge_free_slots(bound.kind, bound.name, bound.most, room * bound.slots) / bound.slots
        );
    END LOOP;
    RETURN room;
END $$;
