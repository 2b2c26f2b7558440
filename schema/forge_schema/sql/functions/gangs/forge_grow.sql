-- Has runs end that have fewer machines than they may, and could go on with more; returns how many.
-- Such a run has computed for `settled`, twice as long for each time that its job grew within a day,
-- and has stored a checkpoint. The others have been idle for `waited`, and no waiting job could have
-- them. They and the members are drafted for the job for a `turn`, in which its next run forms; so no
-- other gang of the pool may have the turn.
-- Of several sweepers one does this at a time. It waits for no lease: it takes those of several runs
-- by priority, and renewals take them by job.
-- Locks: sweeper, then for each run lease (skipping locked), then forming and draft.
CREATE OR REPLACE FUNCTION forge_grow(
    settled interval, waited interval, turn interval, actor text
) RETURNS integer
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    run record;
    members bigint[];
    spare bigint[];
    grown integer := 0;
BEGIN
    FOR run IN
        SELECT
            lease.job_id, lease.attempt, lease.nodes, lease.lane_id, lease.nice, lane.limited,
            shape.id AS shape_id, (job.spec ->> 'max_nodes')::integer - lease.nodes AS more,
            make_interval(secs => coalesce((job.spec ->> 'grace_s')::float8, 0)) AS grace,
            CASE WHEN shape.gpus = 0 THEN 'cpu' ELSE shape.accelerator END AS pool
        FROM lease
        JOIN job ON job.id = lease.job_id
        JOIN lane ON lane.id = lease.lane_id AND NOT lane.paused
        JOIN shape ON shape.id = lane.shape_id
        WHERE lease.nodes > 1 AND lease.rank = 0
            AND lease.nodes < (job.spec ->> 'max_nodes')::integer
            -- It would lose more than it gains.
            AND coalesce(lease.progress, 0) < 0.9
            AND lease.started_at <= forge_now() - settled * power(2, least(6, (
                SELECT count(*) FROM (
                    SELECT FROM attempt_row AS before
                    WHERE before.job_id = lease.job_id
                        AND before.finished_at > forge_now() - interval '1 day'
                    GROUP BY before.attempt
                    -- Of any other run, one member ended first.
                    HAVING bool_and(before.reason = 'run_ended')
                ) AS growths
            )))
            AND EXISTS (
                SELECT FROM forge_complete_checkpoints(lease.job_id) AS kept
                WHERE kept.attempt = lease.attempt
            )
        ORDER BY lease.nice, lease.job_id
    LOOP
        CONTINUE WHEN EXISTS (
            SELECT FROM forming WHERE forming.pool = run.pool AND forming.rests_until IS NULL
        );
        spare := forge_spare(run.shape_id, run.job_id, waited, run.more);
        IF run.limited THEN
            spare := spare[:forge_affordable(run.lane_id, cardinality(spare))];
        END IF;
        CONTINUE WHEN cardinality(spare) = 0;
        PERFORM FROM sweeper FOR UPDATE SKIP LOCKED;
        EXIT WHEN NOT FOUND;
        members := ARRAY(
            SELECT worker_id FROM lease
            WHERE job_id = run.job_id AND attempt = run.attempt
                AND phase = 'running' AND asked IS NULL AND over IS NULL
            ORDER BY rank
            FOR NO KEY UPDATE SKIP LOCKED
        );
        -- One of them may just be renewing its lease; the next tick tries again.
        CONTINUE WHEN cardinality(members) < run.nodes
            OR EXISTS (SELECT FROM draft WHERE worker_id = ANY(members || spare));
        INSERT INTO forming (job_id, pool, lane_id, nice, since, deadline, grows)
        VALUES (
            run.job_id, run.pool, run.lane_id, run.nice, forge_now(),
            forge_now() + run.grace + turn, run.nodes + cardinality(spare)
        )
        ON CONFLICT (job_id) DO UPDATE SET
            since = excluded.since, deadline = excluded.deadline, grows = excluded.grows,
            rests_until = NULL, expected_at = NULL;
        INSERT INTO draft (worker_id, job_id, lane_id, nice, until)
        SELECT one.id, run.job_id, run.lane_id, run.nice, forge_now() + run.grace + turn
        FROM unnest(members || spare) AS one (id)
        ORDER BY one.id;
        UPDATE lease SET asked = 'ended' WHERE job_id = run.job_id;
        PERFORM pg_notify('forge', 'asked:' || one.id) FROM unnest(members) AS one (id);
        INSERT INTO event (at, actor, action, job_id, detail)
        VALUES (forge_now(), actor, 'asked to grow', run.job_id, jsonb_build_object(
            'attempt', run.attempt, 'nodes', run.nodes + cardinality(spare), 'before', run.nodes
        ));
        grown := grown + 1;
    END LOOP;
    RETURN grown;
END $$;
