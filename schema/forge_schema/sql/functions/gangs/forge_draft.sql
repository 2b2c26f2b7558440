-- Drafts workers for gangs that smaller jobs would starve; returns how many were drafted now.
-- A gang's `patience` counts from when it is first by priority, fair share and age on enough workers:
-- `passed_at`, as for a job that does not fit; or from when its GPUs are guaranteed. After it, the first
-- such gang of each pool that enough workers could run has a `turn`: workers are drafted for it, which from then on take only jobs that
-- leave room for it, or end before it can form (`forge_expect`). No worker is drafted for two gangs, so
-- none waits for another.
-- A gang that has not formed by the end of its turn rests as long as that lasted, and other jobs run;
-- its next turn is twice as long, so that one is long enough for the jobs that it waits for.
-- A gang that lost a member has a turn already (`forge_keep`), beside that of the pool, and so has a job
-- on one machine that others leave to it (`forge_displace`).
-- Of several sweepers one does this at a time.
-- Locks: sweeper, then forming, then ready (both skipping locked), then draft.
CREATE OR REPLACE FUNCTION forge_draft(patience interval, turn interval) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    gang record;
    shares jsonb;
    drafted integer := 0;
BEGIN
    IF NOT EXISTS (SELECT FROM shape WHERE nodes > 1) AND NOT EXISTS (SELECT FROM forming) THEN
        RETURN 0;
    END IF;
    PERFORM FROM sweeper FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN 0;
    END IF;
    DELETE FROM forming
    WHERE NOT EXISTS (
        SELECT FROM ready JOIN lane ON lane.id = ready.lane_id AND NOT lane.paused
        WHERE ready.lane_id = forming.lane_id AND ready.nice = forming.nice
            AND ready.job_id = forming.job_id
    )
        -- A run that grows has yet to end.
        AND NOT EXISTS (
            SELECT FROM lease WHERE lease.job_id = forming.job_id AND lease.asked = 'ended'
        );
    UPDATE forming SET rests_until = forge_now() + (deadline - since)
    WHERE rests_until IS NULL AND deadline <= forge_now();
    DELETE FROM draft
    WHERE NOT EXISTS (
        SELECT
        FROM forming
        JOIN lane ON lane.id = forming.lane_id
        JOIN shape ON shape.id = lane.shape_id
        JOIN worker ON worker.id = draft.worker_id
        WHERE forming.job_id = draft.job_id AND forming.rests_until IS NULL
            AND forge_joins(worker)
            AND forge_serves(shape, worker)
    );
    shares := forge_shares(ARRAY(
        SELECT DISTINCT lane.owner
        FROM forge_waiting_lanes() AS waiting (lane_id)
        JOIN lane ON lane.id = waiting.lane_id
    ));
    FOR gang IN
        SELECT * FROM forge_waiting_gangs(shares, 10)
        WHERE NOT limited OR forge_room(lane_id, 1) > 0
        ORDER BY nice, share, job_id
        LIMIT 50
    LOOP
        IF gang.passed_at IS NULL AND (
            forge_goes_first(gang.shape_id, gang.nice, gang.share, gang.job_id, shares)
            OR forge_is_guaranteed(gang.lane_id)
        ) THEN
            UPDATE ready SET passed_at = forge_now()
            WHERE lane_id = gang.lane_id AND nice = gang.nice AND job_id = (
                SELECT job_id FROM ready
                WHERE lane_id = gang.lane_id AND nice = gang.nice AND job_id = gang.job_id
                FOR NO KEY UPDATE SKIP LOCKED
            );
        END IF;
        CONTINUE WHEN gang.passed_at IS NULL OR gang.passed_at > forge_now() - patience
            OR EXISTS (
                SELECT FROM forming
                WHERE (forming.pool = gang.pool AND forming.rests_until IS NULL)
                    OR (
                        forming.job_id = gang.job_id
                        AND coalesce(forming.rests_until, 'infinity') > forge_now()
                    )
            );
        CONTINUE WHEN cardinality(
            forge_draftable(gang.shape_id, gang.job_id, gang.nodes)
        ) < gang.nodes;
        INSERT INTO forming AS f (job_id, pool, lane_id, nice, since, deadline)
        VALUES (
            gang.job_id, gang.pool, gang.lane_id, gang.nice, forge_now(), forge_now() + turn
        )
        ON CONFLICT (job_id) DO UPDATE SET
            pool = excluded.pool, since = forge_now(), deadline = forge_now() + turn * power(2, least(f.turns, 10)),
            turns = f.turns + 1, rests_until = NULL, grows = NULL, expected_at = NULL;
        -- At once, so that the next gang is not promised the same workers.
        drafted := drafted + forge_fill(gang.job_id);
    END LOOP;
    FOR gang IN
        SELECT job_id FROM forming
        WHERE rests_until IS NULL
            -- While a run is being lost, only its own machines wait for the next one.
            AND NOT EXISTS (SELECT FROM lease WHERE lease.job_id = forming.job_id)
        ORDER BY nice, since
    LOOP
        drafted := drafted + forge_fill(gang.job_id);
        PERFORM forge_expect(gang.job_id);
    END LOOP;
    RETURN drafted;
END $$;
