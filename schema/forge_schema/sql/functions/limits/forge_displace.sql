-- Has running jobs of a queue that allows it leave for a waiting job of a higher priority, as a spot
-- notice would: from their last checkpoint, at no retry. Returns how many. The first jobs of each lane
-- are looked at, if no idle worker has room for them.
-- Those that leave are the cheapest that give the waiting job its room on one machine, or the slots of
-- its limits: those that lose the least work since their last checkpoint. A gang leaves as a whole. A
-- job is left alone while it is younger than the queue's `preempts_after_s`, and at most
-- `most_preempted` leave the queue at once. If no choice lets the waiting job start, nobody leaves.
-- A job that was displaced displaces none, and equal priorities never do, so there is no circle.
-- The waiting job counts as passed by, so that workers reserve the room for it.
-- Of several sweepers one does this at a time, and each sees whom the one before it asked.
-- Locks: sweeper, then ready (both skipping locked), then lease by job and rank.
CREATE OR REPLACE FUNCTION forge_displace(actor text) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    urgent record;
    leaving integer;
    victims bigint[];
    kept bigint[];
    one bigint;
    machine bigint;
    displaced integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM queue WHERE preemption = 'higher-priority') THEN
        RETURN 0;
    END IF;
    PERFORM FROM sweeper FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    FOR urgent IN
        WITH lowest AS MATERIALIZED (
            SELECT lane.queue, max(lease.nice) AS nice
            FROM lease JOIN lane ON lane.id = lease.lane_id
            WHERE lease.over IS NULL AND lease.asked IS NULL
            GROUP BY lane.queue
        )
        SELECT
            head.job_id, head.nice, lane.id AS lane_id, lane.shape_id, lane.limited, q.name AS queue,
            q.preempts_after_s, q.most_preempted
        FROM queue AS q
        JOIN lowest ON lowest.queue = q.name
        JOIN lane ON lane.queue = q.name AND NOT lane.paused
        JOIN shape ON shape.id = lane.shape_id AND shape.nodes = 1
        CROSS JOIN LATERAL (
            SELECT ready.job_id, ready.nice, ready.ready_at FROM ready
            WHERE ready.lane_id = lane.id
            ORDER BY ready.nice, ready.job_id
            LIMIT 1
        ) AS head
        WHERE q.preemption = 'higher-priority' AND head.nice < lowest.nice
            -- Whoever was woken for it may be about to claim it.
            AND head.ready_at <= forge_now() - interval '5 seconds'
            AND NOT EXISTS (
                SELECT FROM event WHERE event.job_id = head.job_id AND event.action = 'displaced'
            )
        ORDER BY head.nice, head.job_id
        LIMIT 20
    LOOP
        SELECT count(DISTINCT lease.job_id) INTO leaving
        FROM lease JOIN lane ON lane.id = lease.lane_id
        WHERE lane.queue = urgent.queue AND lease.asked = 'preempted';
        CONTINUE WHEN leaving >= urgent.most_preempted OR EXISTS (
            SELECT FROM forge_leaving_for(urgent.job_id)
        );
        PERFORM FROM ready
        WHERE lane_id = urgent.lane_id AND nice = urgent.nice AND job_id = urgent.job_id
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        victims := ARRAY(
            SELECT job_id FROM forge_displaceable(
                urgent.queue, urgent.nice, make_interval(secs => urgent.preempts_after_s)
            )
            ORDER BY lost_s, job_id
        );
        kept := NULL;
        IF forge_has_idle(urgent.shape_id) THEN
            -- Only a limit can be in its way.
            machine := NULL;
            CONTINUE WHEN NOT urgent.limited OR forge_room(urgent.lane_id, 1) > 0;
            FOR n IN 1..cardinality(victims) LOOP
                kept := victims[:n];
                EXIT WHEN forge_room_without(urgent.lane_id, kept);
            END LOOP;
        ELSE
            SELECT able.worker_id, able.jobs INTO machine, kept
            FROM forge_cheapest_room(urgent.shape_id, victims) AS able;
        END IF;
        -- Whoever leaves in vain stays: one that was added before the one that gives the room.
        FOREACH one IN ARRAY coalesce(kept, '{}') LOOP
            IF cardinality(kept) > 1
                AND (machine IS NULL
                    OR forge_fits_without(urgent.shape_id, machine, array_remove(kept, one)))
                AND (NOT urgent.limited
                    OR forge_room_without(urgent.lane_id, array_remove(kept, one)))
            THEN
                kept := array_remove(kept, one);
            END IF;
        END LOOP;
        CONTINUE WHEN coalesce(cardinality(kept), 0) NOT BETWEEN 1 AND urgent.most_preempted - leaving
            OR urgent.limited AND NOT forge_room_without(urgent.lane_id, kept);
        PERFORM FROM lease WHERE job_id = ANY(kept) ORDER BY job_id, rank FOR UPDATE;
        CONTINUE WHEN (
            SELECT count(DISTINCT job_id) FILTER (WHERE asked IS NULL AND over IS NULL) FROM lease
            WHERE job_id = ANY(kept)
        ) < cardinality(kept);
        INSERT INTO event (at, actor, action, job_id, detail)
        SELECT
            forge_now(), actor, 'displaced', lease.job_id,
            jsonb_build_object(
                'by', urgent.job_id, 'priority', -urgent.nice, 'own', -lease.nice,
                'attempt', lease.attempt
            )
        FROM lease WHERE lease.job_id = ANY(kept) AND lease.rank = 0;
        PERFORM pg_notify('forge', 'asked:' || lease.worker_id)
        FROM lease WHERE lease.job_id = ANY(kept);
        UPDATE lease SET asked = 'preempted' WHERE job_id = ANY(kept) AND over IS NULL;
        UPDATE ready SET passed_at = least(passed_at, forge_now() - interval '1 hour')
        WHERE lane_id = urgent.lane_id AND nice = urgent.nice AND job_id = urgent.job_id;
        displaced := displaced + cardinality(kept);
    END LOOP;
    RETURN displaced;
END $$;
