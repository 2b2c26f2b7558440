-- Adds to each owner's usage what the owner's jobs hold, for the time since the last count. A job
-- that started or ended in between counts fully or not at all, which evens out, also for jobs that
-- are shorter than that. Owners whose jobs only wait are noted every few minutes.
-- Without running jobs it writes nothing, and so does the second of two sweepers at once.
-- Locks: sweeper, then owner_usage by owner.
WITH last AS MATERIALIZED (
    SELECT
        counted_at, level, pace,
        least(coalesce(extract(EPOCH FROM forge_now() - counted_at)::float8, 0), 60) AS seconds
    FROM sweeper
    WHERE EXISTS (SELECT FROM lease)
        AND coalesce(counted_at NOT BETWEEN forge_now() - interval '1s' AND forge_now(), true)
    FOR UPDATE
),
active AS MATERIALIZED (
    SELECT these.owner, sum(these.held) AS held
    FROM (
        SELECT of_owner.key AS owner, of_owner.value::float8 AS held
        FROM last CROSS JOIN jsonb_each_text(forge_held_by_owner()) AS of_owner
        UNION ALL
        SELECT lane.owner, 0
        FROM last
        CROSS JOIN forge_waiting_lanes() AS waiting (lane_id)
        JOIN lane ON lane.id = waiting.lane_id AND NOT lane.paused
    ) AS these
    GROUP BY these.owner
),
counted AS MATERIALIZED (
    SELECT
        o.owner, o.weight, active.held,
        last.level + forge_lead(u.level - last.level, last.counted_at - u.at, last.pace)
            + active.held / o.weight * greatest(last.seconds, 0) AS level
    FROM active
    CROSS JOIN last
    JOIN owner_quota AS o ON o.owner = active.owner
    LEFT JOIN owner_usage AS u ON u.owner = active.owner
    WHERE active.held > 0 OR u.owner IS NULL
        OR u.at NOT BETWEEN forge_now() - interval '2 minutes' AND forge_now()
),
added AS (
    INSERT INTO owner_usage (owner, level, at)
    SELECT owner, level, forge_now() FROM counted ORDER BY owner
    ON CONFLICT (owner) DO UPDATE SET level = excluded.level, at = excluded.at
),
told AS (
    UPDATE sweeper SET
        counted_at = forge_now(), level = running.level, pace = running.pace
    FROM (
        SELECT
            percentile_cont(0.5) WITHIN GROUP (ORDER BY level) AS level,
            sum(held) / sum(weight) AS pace
        FROM counted WHERE held > 0
    ) AS running
    WHERE running.pace > 0
)
SELECT count(*)::integer AS owners FROM counted
