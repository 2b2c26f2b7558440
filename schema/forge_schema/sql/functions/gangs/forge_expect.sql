-- Notes by when a gang in its turn should have enough of its drafted workers; until then, short jobs
-- may run on those that are free already. The moment only ever comes nearer, so the gang never waits
-- longer, however many jobs pass. The last quarter of a turn is the gang's alone, as a job may take
-- long to prepare.
-- A worker has room once the first of its jobs ends: by its time limit, or earlier by its progress. A
-- job that has neither, or was asked to stop, may end at any moment: nothing passes on its account.
CREATE OR REPLACE FUNCTION forge_expect(gang bigint) RETURNS void
LANGUAGE sql VOLATILE AS $$
    WITH turn AS MATERIALIZED (
        SELECT forming.*, shape.id AS shape_id, shape.nodes
        FROM forming
        JOIN lane ON lane.id = forming.lane_id
        JOIN shape ON shape.id = lane.shape_id
        WHERE forming.job_id = gang AND forming.rests_until IS NULL
            AND (forming.expected_at IS NULL OR forming.expected_at > forge_now())
    ),
    ends AS MATERIALIZED (
        SELECT
            lease.worker_id,
            min(coalesce(CASE WHEN lease.asked IS NULL THEN least(
                forge_longest(lease.job_id) - since.start_s,
                CASE
                    WHEN progress > 0.05 THEN since.claim_s * (1 - progress) / progress
                END
            ) END, 0)) AS left_s
        FROM turn
        JOIN draft ON draft.job_id = turn.job_id
        JOIN lease ON lease.worker_id = draft.worker_id
        CROSS JOIN LATERAL (
            SELECT
                extract(EPOCH FROM forge_now() - lease.claimed_at)::float8 AS claim_s,
                extract(
                    EPOCH FROM forge_now() - coalesce(lease.started_at, lease.claimed_at)
                )::float8 AS start_s
        ) AS since
        GROUP BY lease.worker_id
    ),
    enough AS (
        SELECT
            turn.job_id, turn.since + (turn.deadline - turn.since) * 0.75 AS last,
            (array_agg(free.after_s ORDER BY free.after_s))[turn.nodes] AS after_s
        FROM turn
        JOIN shape ON shape.id = turn.shape_id
        JOIN draft ON draft.job_id = turn.job_id
        JOIN worker ON worker.id = draft.worker_id
        CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
        LEFT JOIN ends ON ends.worker_id = worker.id
        CROSS JOIN LATERAL (
            SELECT CASE
                WHEN EXISTS (
                    SELECT FROM idle
                    WHERE idle.worker_id = worker.id AND forge_idle_fits(
                        shape, lent.cpus, lent.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                        idle.gpus, idle.gpu_model, idle.vram_mb
                    )
                ) THEN 0
                ELSE greatest(ends.left_s, 0)
            END AS after_s
        ) AS free
        GROUP BY turn.job_id, turn.since, turn.deadline, turn.nodes
    )
    UPDATE forming
    SET expected_at = least(
        forming.expected_at, enough.last, forge_now() + make_interval(secs => enough.after_s)
    )
    FROM enough
    WHERE forming.job_id = enough.job_id AND enough.after_s IS NOT NULL
$$;
