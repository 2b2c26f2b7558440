-- Forms gangs, of all lanes or of some: where enough idle workers have room for one, all of them are
-- leased for it at once, each under the name of its next claim. Returns how many were formed.
-- A gang with a range of machines takes as many as there are, and as its limits leave GPUs for. It
-- waits a moment for those that are about to come.
-- The first gangs by priority, fair share and age are tried, and those behind them too if they lack
-- machines. Nobody holds anything for a gang that does not form.
-- A worker that another gang of the same or a higher priority has drafted is left to that.
-- Locks, skipping locked: for each gang ready, then idle of all its workers, then slot.
CREATE OR REPLACE FUNCTION forge_form(lanes integer[] DEFAULT NULL) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    -- Taken before any look at the idle workers.
    seen text := forge_seen();
    offers bigint := (SELECT count(DISTINCT worker_id) FROM idle WHERE nonce IS NOT NULL);
    formed integer := 0;
    -- What too few workers can run.
    lacking text[] := '{}';
    gang record;
    shares jsonb;
    chosen bigint[];
    members bigint[];
    nonces uuid[];
    size integer;
BEGIN
    IF offers < 2 OR NOT EXISTS (SELECT FROM shape WHERE nodes > 1) THEN
        RETURN 0;
    END IF;
    shares := forge_shares(ARRAY(
        SELECT DISTINCT lane.owner
        FROM shape JOIN lane ON lane.shape_id = shape.id
        WHERE shape.nodes > 1
    ));
    FOR gang IN
        SELECT *, format('%s %s', shape_id, alike) AS kind
        FROM forge_waiting_gangs(shares, 100, lanes)
        WHERE nodes <= offers
        ORDER BY nice, share, job_id
        LIMIT 100
    LOOP
        CONTINUE WHEN gang.nodes > offers OR gang.kind = ANY(lacking)
            OR gang.limited AND forge_room(gang.lane_id, 1) = 0;
        PERFORM FROM ready
        WHERE lane_id = gang.lane_id AND nice = gang.nice AND job_id = gang.job_id
        FOR UPDATE SKIP LOCKED;
        CONTINUE WHEN NOT FOUND;
        chosen := forge_offers(gang.shape_id, gang.job_id, gang.nice, gang.parts);
        IF cardinality(chosen) < gang.nodes THEN
            -- Another gang of this kind may have drafted the workers that this one may not take.
            IF NOT EXISTS (SELECT FROM draft) THEN
                lacking := lacking || gang.kind;
            END IF;
            CONTINUE;
        END IF;
        -- A worker has a row for each model of its free GPUs. Whoever has all of them has the worker.
        WITH locked AS MATERIALIZED (
            SELECT
                idle.worker_id, idle.nonce,
                forge_idle_fits(
                    shape, lent.cpus, lent.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                    idle.gpus, idle.gpu_model, idle.vram_mb
                ) AS fits
            FROM idle
            JOIN worker ON worker.id = idle.worker_id AND worker.boot_id = idle.boot_id
            JOIN shape ON shape.id = gang.shape_id
            CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
            WHERE idle.worker_id = ANY(chosen)
            FOR UPDATE OF idle SKIP LOCKED
        ),
        whole AS (
            SELECT
                locked.worker_id,
                (array_agg(locked.nonce) FILTER (WHERE locked.fits))[1] AS nonce,
                array_position(chosen, locked.worker_id) AS place
            FROM locked
            GROUP BY locked.worker_id
            HAVING count(*) = (
                SELECT count(*)
                FROM idle JOIN worker ON worker.id = idle.worker_id AND worker.boot_id = idle.boot_id
                WHERE idle.worker_id = locked.worker_id
            )
        ),
        first AS (
            SELECT * FROM whole WHERE nonce IS NOT NULL ORDER BY place LIMIT gang.at_most
        )
        SELECT count(*), array_agg(worker_id ORDER BY place), array_agg(nonce ORDER BY place)
        INTO size, members, nonces
        FROM first;
        CONTINUE WHEN size >= gang.nodes AND size < gang.at_most
            AND forge_more_come(gang.shape_id, gang.lane_id, gang.nice, gang.job_id, members);
        IF gang.limited AND size > gang.nodes THEN
            size := forge_affordable(gang.lane_id, size);
        END IF;
        -- Others have some of them just now; they are tried again before long.
        CONTINUE WHEN size < gang.nodes
            OR gang.limited AND NOT forge_take_slots(gang.lane_id, gang.job_id, size);
        members := members[:size];
        nonces := nonces[:size];
        WITH taken AS (
            DELETE FROM ready
            WHERE lane_id = gang.lane_id AND nice = gang.nice AND job_id = gang.job_id
            RETURNING *
        )
        INSERT INTO lease (
            job_id, rank, nodes, nonce, worker_id, lane_id, nice, attempt, failures, losses,
            preemptions, ready_at, claimed_at, expires_at
        )
        SELECT
            taken.job_id, member.n - 1, size, member.nonce, member.worker_id, taken.lane_id,
            taken.nice, taken.attempt + 1, taken.failures, taken.losses, taken.preemptions,
            taken.ready_at, forge_now(), forge_now() + interval '2 minutes'
        FROM taken
        CROSS JOIN unnest(members, nonces) WITH ORDINALITY AS member (worker_id, nonce, n);
        -- All rows that it has locked, and none for which it would have to wait.
        DELETE FROM idle
        WHERE ctid = ANY(ARRAY(
            SELECT ctid FROM idle WHERE worker_id = ANY(members) FOR UPDATE SKIP LOCKED
        ));
        offers := offers - size;
        formed := formed + 1;
        PERFORM forge_hint('ready', members, seen);
    END LOOP;
    RETURN formed;
END $$;
