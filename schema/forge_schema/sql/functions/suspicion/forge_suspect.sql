-- Judges the workers by what became of jobs on them; returns how many verdicts changed.
-- A worker that `forge_blamed` names is suspected: it rests for a minute, and then takes one job at a
-- time. If that one fails, it rests twice as long, up to an hour; if it succeeds, all is forgotten.
-- At most half of the workers that are there rest at once: of two that are blamed at the same moment,
-- the second one waits for its turn. Of several sweepers one does this at a time.
-- Heartbeats change workers meanwhile, hence no choice of partitions: see `thin`.
-- Locks: sweeper (skipping locked), then worker.
CREATE OR REPLACE FUNCTION forge_suspect(actor text) RETURNS integer
LANGUAGE plpgsql VOLATILE SET enable_partition_pruning = off AS $$
DECLARE
    most bigint;
    changed integer := 0;
    one record;
BEGIN
    PERFORM FROM sweeper FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    -- Read only now: what another sweeper did just before is seen.
    FOR one IN
        UPDATE worker
        SET suspected_for = NULL, judged_at = forge_now(), rests = 0, rests_until = NULL
        WHERE suspected_for IS NOT NULL AND EXISTS (
            SELECT FROM outcome
            WHERE outcome.worker_id = worker.id AND outcome.state = 'succeeded'
                AND outcome.finished_at >= worker.judged_at
                AND outcome.claimed_at >= worker.judged_at
        )
        RETURNING id
    LOOP
        INSERT INTO event (at, actor, action, worker_id)
        VALUES (forge_now(), actor, 'trusted', one.id);
        changed := changed + 1;
    END LOOP;
    UPDATE worker
    SET rests = least(rests + 1, 100),
        rests_until = forge_now()
            + least(interval '1 minute' * power(2, least(rests, 10)), interval '1 hour')
    WHERE suspected_for IS NOT NULL AND rests_until <= forge_now() AND EXISTS (
        SELECT FROM attempt_row AS ended
        WHERE ended.worker_id = worker.id AND ended.finished_at >= worker.rests_until
            AND ended.claimed_at >= worker.judged_at
            AND forge_accuses(ended.reason)
    );
    SELECT count(*) / 2 INTO most FROM worker WHERE status NOT IN ('offline', 'connecting');
    FOR one IN
        UPDATE worker
        SET suspected_for = format(
                'jobs of %s owners failed on it and succeeded elsewhere', blamed.owners
            ),
            judged_at = forge_now(), rests = 1, rests_until = forge_now() + interval '1 minute'
        FROM forge_blamed() AS blamed
        WHERE worker.id = blamed.worker_id AND worker.id IN (
            SELECT worker_id FROM forge_blamed() ORDER BY jobs DESC, worker_id
            LIMIT greatest(0, most - (
                SELECT count(*) FROM worker AS other
                WHERE forge_rests(other) AND other.status <> 'offline'
            ))
        )
        RETURNING worker.id, suspected_for
    LOOP
        INSERT INTO event (at, actor, action, worker_id, detail)
        VALUES (
            forge_now(), actor, 'suspected', one.id,
            jsonb_build_object('why', one.suspected_for)
        );
        changed := changed + 1;
    END LOOP;
    -- Others may have left since: those that rested least try again at once.
    UPDATE worker SET rests_until = forge_now()
    WHERE id IN (
        SELECT id FROM worker AS other WHERE forge_rests(other) AND other.status <> 'offline'
        ORDER BY rests DESC, rests_until DESC, id OFFSET most
    );
    RETURN changed;
END $$;
