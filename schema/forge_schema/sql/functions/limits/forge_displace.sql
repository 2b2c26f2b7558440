-- Has running jobs of a queue that allows it leave for a waiting job of a higher priority, as a spot
-- notice would: from their last checkpoint, at no retry. Returns how many. The first jobs of each lane
-- are looked at, if no idle worker has room for them, and gangs for which workers are drafted.
-- Those that leave are the cheapest that give the waiting job its room on one machine, a gang on as many
-- of its drafted ones as it needs, or the slots of its limits: those that lose the least work since their
-- last checkpoint. A gang leaves as a whole. A
-- job is left alone while it is younger than the queue's `preempts_after_s`, and at most
-- `most_preempted` leave the queue at once. If no choice lets the waiting job start, nobody leaves.
-- A job that was displaced displaces none, and equal priorities never do, so there is no circle. Those
-- behind it still do.
-- The waiting job counts as passed by, so that workers reserve the room for it; the slots of a limit are
-- kept for it while it waits and for a minute after the last one has left: see `forge_yields_to`.
-- Of several sweepers one does this at a time, and each sees whom the one before it asked.
-- Locks: sweeper, then queue; ready (skipping locked), then lease by job and rank, then queue.
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
    UPDATE queue
    SET yields_until = CASE WHEN its.waits THEN
        CASE
            WHEN EXISTS (SELECT FROM forge_leaving_for(yields_for))
                THEN forge_now() + interval '1 minute'
            ELSE yields_until
        END
    END
    FROM (
        SELECT job.id, EXISTS (
            SELECT FROM ready
            WHERE ready.lane_id = job.lane_id AND ready.nice = job.nice AND ready.job_id = job.id
        ) AS waits
        FROM job
    ) AS its
    WHERE yields_until IS NOT NULL AND its.id = yields_for;
    FOR urgent IN
        WITH lowest AS MATERIALIZED (
            SELECT lane.queue, max(lease.nice) AS nice
            FROM lease JOIN lane ON lane.id = lease.lane_id
            WHERE lease.over IS NULL AND lease.asked IS NULL
            GROUP BY lane.queue
        )
        SELECT
            head.job_id, head.nice, lane.id AS lane_id, lane.shape_id, lane.limited, shape.nodes,
            q.name AS queue, q.preempts_after_s, q.most_preempted
        FROM queue AS q
        JOIN lowest ON lowest.queue = q.name
        JOIN lane ON lane.queue = q.name AND NOT lane.paused
        JOIN shape ON shape.id = lane.shape_id
        CROSS JOIN LATERAL (
            SELECT ready.job_id, ready.nice, ready.ready_at, ready.avoids FROM ready
            WHERE ready.lane_id = lane.id AND ready.nice < lowest.nice
                AND NOT EXISTS (
                    SELECT FROM event
                    WHERE event.job_id = ready.job_id AND event.action = 'displaced'
                )
                AND (
                    shape.nodes = 1 OR EXISTS (
                        SELECT FROM forming
                        WHERE forming.job_id = ready.job_id AND forming.rests_until IS NULL
                    )
                )
            ORDER BY ready.nice, ready.job_id
            LIMIT 1
        ) AS head
        WHERE q.preemption = 'higher-priority'
            -- Whoever was woken for it may be about to claim it, and it may leave its room to others.
            AND head.ready_at <= forge_now() - CASE
                WHEN head.avoids IS NULL THEN interval '5 seconds' ELSE forge_avoidance()
            END
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
        machine := NULL;
        IF urgent.nodes > 1 THEN
            CONTINUE WHEN forge_members_without(urgent.shape_id, urgent.job_id, '{}')
                >= urgent.nodes
                OR forge_members_without(urgent.shape_id, urgent.job_id, victims) < urgent.nodes;
            FOR n IN 1..cardinality(victims) LOOP
                kept := victims[:n];
                EXIT WHEN forge_members_without(urgent.shape_id, urgent.job_id, kept)
                    >= urgent.nodes;
            END LOOP;
        ELSIF forge_has_idle(urgent.shape_id) THEN
            -- Only a limit can be in its way.
            CONTINUE WHEN NOT urgent.limited OR forge_room(urgent.lane_id, 1) > 0;
            kept := '{}';
        ELSE
            SELECT able.worker_id, able.jobs INTO machine, kept
            FROM forge_cheapest_room(urgent.shape_id, victims) AS able;
        END IF;
        -- Its limits may ask for more than its machines.
        FOREACH one IN ARRAY victims LOOP
            EXIT WHEN kept IS NULL OR NOT urgent.limited
                OR forge_room_without(urgent.lane_id, kept);
            kept := CASE WHEN one = ANY(kept) THEN kept ELSE kept || one END;
        END LOOP;
        -- Whoever leaves in vain stays: one that was added before the one that gives the room.
        FOREACH one IN ARRAY coalesce(kept, '{}') LOOP
            IF cardinality(kept) > 1
                AND (machine IS NULL
                    OR forge_fits_without(urgent.shape_id, machine, array_remove(kept, one)))
                AND (urgent.nodes = 1 OR urgent.nodes <= forge_members_without(
                    urgent.shape_id, urgent.job_id, array_remove(kept, one)
                ))
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
        IF urgent.limited THEN
            UPDATE queue
            SET yields_for = urgent.job_id, yields_to = urgent.nice,
                yields_until = forge_now() + interval '1 minute'
            WHERE name = urgent.queue;
        END IF;
        displaced := displaced + cardinality(kept);
    END LOOP;
    RETURN displaced;
END $$;
