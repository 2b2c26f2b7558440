-- Has running jobs leave for a waiting one, as a spot notice would: from their last checkpoint, at no
-- retry. Returns how many. They leave for one of a higher priority, in a queue that allows it, or for
-- one whose GPUs are guaranteed and lent to them (`forge_displaceable`). The first jobs of each lane
-- are looked at, if no idle worker has room for them, and gangs for which workers are drafted.
-- Those that leave are the cheapest that give the waiting job its room on one machine, a gang on as many
-- of its drafted ones as it needs, or the slots of its limits: those that lose the least work since their
-- last checkpoint. A gang leaves as a whole. A
-- job is left alone while it is younger than its queue's `preempts_after_s`, and at most
-- `most_preempted` leave a queue at once. If no choice lets the waiting job start, nobody leaves.
-- A job that was displaced outranks none, and equal priorities never do; and what is guaranteed is only
-- ever given back, never taken. So there is no circle. Those behind it still do.
-- The waiting job counts as passed by, so that workers reserve the room for it; the slots of a limit are
-- kept for it while it waits and for a minute after the last one has left: see `forge_yields_to`. For
-- one with a guarantee, the worker is drafted as for a gang, against jobs of any priority.
-- Of several sweepers one does this at a time, and each sees whom the one before it asked.
-- Locks: sweeper, then queue; ready (skipping locked), then lease by job and rank, then forming,
-- draft and queue.
CREATE OR REPLACE FUNCTION forge_displace(actor text) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    urgent record;
    victims bigint[];
    kept bigint[];
    one bigint;
    machine bigint;
    displaced integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM queue WHERE preemption = 'higher-priority')
        AND NOT EXISTS (SELECT FROM forge_guarantees(0))
    THEN
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
            head.job_id, head.nice, head.outranks, its.due, lane.id AS lane_id, lane.shape_id,
            lane.limited, shape.nodes, lane.queue
        FROM forge_waiting_lanes() AS waiting (lane_id)
        JOIN lane ON lane.id = waiting.lane_id AND NOT lane.paused
        JOIN shape ON shape.id = lane.shape_id
        JOIN queue AS q ON q.name = lane.queue
        LEFT JOIN lowest ON lowest.queue = q.name AND q.preemption = 'higher-priority'
        CROSS JOIN LATERAL (SELECT forge_is_guaranteed(lane.id) AS due) AS its
        CROSS JOIN LATERAL (
            SELECT ready.job_id, ready.nice, ready.ready_at, ready.avoids, outranks.it AS outranks
            FROM ready
            CROSS JOIN LATERAL (
                SELECT coalesce(ready.nice < lowest.nice, false) AND NOT EXISTS (
                    SELECT FROM event
                    WHERE event.job_id = ready.job_id AND event.action = 'displaced'
                ) AS it
            ) AS outranks
            WHERE ready.lane_id = lane.id AND (outranks.it OR its.due)
                AND (
                    shape.nodes = 1 OR EXISTS (
                        SELECT FROM forming
                        WHERE forming.job_id = ready.job_id AND forming.rests_until IS NULL
                    )
                )
            ORDER BY ready.nice, ready.job_id
            LIMIT 1
        ) AS head
            -- Whoever was woken for it may be about to claim it, and it may leave its room to others.
        WHERE head.ready_at <= forge_now() - CASE
            WHEN head.avoids IS NULL THEN interval '5 seconds' ELSE forge_avoidance()
        END
        ORDER BY head.nice, head.job_id
        LIMIT 20
    LOOP
        -- Others that had the right, in this loop, may use it up.
        urgent.due := urgent.due AND forge_is_guaranteed(urgent.lane_id);
        CONTINUE WHEN NOT (urgent.outranks OR urgent.due)
            OR EXISTS (SELECT FROM forge_leaving_for(urgent.job_id))
            -- It is about to claim what has been kept for it.
            OR urgent.nodes = 1 AND EXISTS (
                SELECT FROM draft WHERE draft.job_id = urgent.job_id AND until > forge_now()
            );
        PERFORM FROM ready
        WHERE lane_id = urgent.lane_id AND nice = urgent.nice AND job_id = urgent.job_id
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        victims := ARRAY(
            SELECT job_id FROM forge_displaceable(
                urgent.lane_id, urgent.nice, urgent.outranks, urgent.due,
                by_worker => urgent.nodes = 1 AND NOT urgent.limited
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
            FROM forge_cheapest_room(
                urgent.shape_id, victims, urgent.limited AND forge_room(urgent.lane_id, 1) = 0
            ) AS able;
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
        CONTINUE WHEN coalesce(cardinality(kept), 0) = 0
            OR urgent.limited AND NOT forge_room_without(urgent.lane_id, kept)
            OR EXISTS (
                SELECT
                FROM lease
                JOIN lane ON lane.id = lease.lane_id
                JOIN queue ON queue.name = lane.queue
                WHERE lease.asked = 'preempted' OR lease.job_id = ANY(kept)
                GROUP BY queue.name
                HAVING count(DISTINCT lease.job_id) > queue.most_preempted
                    AND bool_or(lease.job_id = ANY(kept))
            );
        PERFORM FROM lease WHERE job_id = ANY(kept) ORDER BY job_id, rank FOR UPDATE;
        CONTINUE WHEN (
            SELECT count(DISTINCT job_id) FILTER (WHERE asked IS NULL AND over IS NULL) FROM lease
            WHERE job_id = ANY(kept)
        ) < cardinality(kept);
        INSERT INTO event (at, actor, action, job_id, detail)
        SELECT
            forge_now(), actor, 'displaced', lease.job_id,
            jsonb_strip_nulls(jsonb_build_object(
                'by', urgent.job_id, 'priority', -urgent.nice, 'own', -lease.nice,
                'attempt', lease.attempt, 'guaranteed_to', why.guaranteed_to
            ))
        FROM lease
        JOIN forge_displaceable(
            urgent.lane_id, urgent.nice, urgent.outranks, urgent.due, by_worker => true
        ) AS why ON why.job_id = lease.job_id
        WHERE lease.job_id = ANY(kept) AND lease.rank = 0;
        PERFORM pg_notify('forge', 'asked:' || lease.worker_id)
        FROM lease WHERE lease.job_id = ANY(kept);
        UPDATE lease SET asked = 'preempted' WHERE job_id = ANY(kept) AND over IS NULL;
        UPDATE ready SET passed_at = least(passed_at, forge_now() - interval '1 hour')
        WHERE lane_id = urgent.lane_id AND nice = urgent.nice AND job_id = urgent.job_id;
        IF urgent.due AND machine IS NOT NULL THEN
            INSERT INTO forming AS f (job_id, pool, lane_id, nice, since, deadline)
            VALUES (
                urgent.job_id, 'job ' || urgent.job_id, urgent.lane_id, urgent.nice, forge_now(),
                forge_now() + interval '5 minutes'
            )
            ON CONFLICT (job_id) DO UPDATE SET
                since = excluded.since, deadline = excluded.deadline, rests_until = NULL,
                expected_at = NULL;
            INSERT INTO draft (worker_id, job_id, lane_id, nice, until)
            SELECT machine, f.job_id, f.lane_id, f.nice, f.deadline
            FROM forming AS f WHERE f.job_id = urgent.job_id
            ON CONFLICT DO NOTHING;
        END IF;
        -- Else those who left would take it again: no `nice` is below this one.
        UPDATE draft SET nice = -32767 WHERE urgent.due AND job_id = urgent.job_id;
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
