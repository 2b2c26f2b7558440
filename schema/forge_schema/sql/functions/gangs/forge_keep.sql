-- Has machines keep room for the next run of a gang: those whose members are over only because of another
-- one, which may be lost, or are asked to be and store their output, while their room is free. They are drafted as for a turn, which no other gang has to wait for. Returns
-- how many they are; none if the run was asked to end, or ends to grow.
-- Called as members end: a lost machine's lease lasts for minutes, and the others are free at once.
-- Locks: forming, then draft by worker. The caller holds the run's lock.
CREATE OR REPLACE FUNCTION forge_keep(gang bigint, turn interval) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    WITH member AS MATERIALIZED (
        SELECT lease.worker_id, lease.lane_id, lease.nice FROM lease
        WHERE lease.job_id = gang AND lease.nodes > 1
            AND CASE
                WHEN lease.over IS NULL THEN lease.asked = 'ended' AND lease.phase = 'finishing'
                ELSE (lease.over ->> 'level')::integer > 0
            END
            AND NOT EXISTS (
                SELECT FROM lease AS other WHERE other.job_id = gang AND other.asked <> 'ended'
            )
    ),
    kept AS (
        INSERT INTO forming AS f (job_id, pool, lane_id, nice, since, deadline)
        SELECT gang, 'job ' || gang, member.lane_id, member.nice, forge_now(), forge_now() + turn
        FROM member
        -- They are of one job. The clock runs on, so DISTINCT would not make them one.
        LIMIT 1
        ON CONFLICT (job_id) DO UPDATE SET
            pool = excluded.pool, since = excluded.since, deadline = excluded.deadline,
            rests_until = NULL, expected_at = NULL
            WHERE f.grows IS NULL
        RETURNING job_id, deadline
    ),
    drafted AS (
        INSERT INTO draft AS d (worker_id, job_id, lane_id, nice, until)
        SELECT worker.id, kept.job_id, member.lane_id, member.nice, kept.deadline
        FROM kept
        CROSS JOIN member
        JOIN worker ON worker.id = member.worker_id AND forge_joins(worker)
        ORDER BY worker.id
        ON CONFLICT (worker_id) DO UPDATE SET until = excluded.until
            WHERE d.job_id = excluded.job_id
        RETURNING worker_id
    )
    SELECT count(*) FROM drafted
$$;
