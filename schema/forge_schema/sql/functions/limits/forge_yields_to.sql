-- The last `nice` of which jobs may start in a queue whose limit is full: while others leave for a more
-- urgent one, nobody behind that takes the slots that they give up, one after another.
CREATE OR REPLACE FUNCTION forge_yields_to(of_queue text) RETURNS smallint
LANGUAGE sql STABLE AS $$
    SELECT coalesce(
        (SELECT yields_to FROM queue WHERE name = of_queue AND yields_until > forge_now()),
        32767::smallint
    )
$$;
