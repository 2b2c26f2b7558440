-- Counts what an owner and the owner's team have used this month, or all that have a budget, or
-- whose team has one; a team has used what its owners have: attempts that ended, and the
-- time that leases were held so far. Of what crosses midnight of the first day, only the part of
-- this month counts. Notes in the audit trail when a budget is spent, and when there is some again;
-- pauses and resumes the owner. Idempotent: of two at once, either has counted all.
-- What ended some minutes ago is settled: no transaction that is still open can add to it.
-- Locks: owner_quota by owner, then spending, then team.
WITH clock AS MATERIALIZED (
    -- Read once: what is settled, and until when, must agree.
    SELECT
        forge_now() AS now, forge_month() AS month,
        forge_now() - interval '10 minutes' AS settled_at
),
due AS MATERIALIZED (
    SELECT
        o.owner, o.team, o.paused, o.when_spent, o.gpu_hours_per_month, o.cost_per_month,
        spending.spent_at, clock.now, clock.month,
        greatest(spending.settled_at, clock.month) AS since,
        greatest(spending.settled_at, clock.month, clock.settled_at) AS settled_at,
        coalesce(spending.settled_gpu_hours, 0) * this.month AS gpu_hours,
        coalesce(spending.settled_cost, 0) * this.month AS cost,
        allowed.limited
    FROM owner_quota AS o
    CROSS JOIN clock
    LEFT JOIN team AS t ON t.name = o.team
    CROSS JOIN LATERAL (
        SELECT num_nonnulls(
            o.gpu_hours_per_month, o.cost_per_month, t.gpu_hours_per_month, t.cost_per_month
        ) > 0 AS limited
    ) AS allowed
    LEFT JOIN spending ON spending.owner = o.owner
    CROSS JOIN LATERAL (
        SELECT CASE WHEN spending.settled_at >= clock.month THEN 1 ELSE 0 END AS month
    ) AS this
    WHERE (%(owner)s::text IS NULL OR o.owner = %(owner)s OR o.team = forge_team(%(owner)s))
        -- A budget that was taken away is forgotten, with its pause.
        AND (allowed.limited OR spending.owner IS NOT NULL)
    ORDER BY o.owner
    FOR NO KEY UPDATE OF o
),
ended AS MATERIALIZED (
    SELECT
        due.owner, attempt.finished_at < due.settled_at AS settled,
        sum(attempt.gpu_seconds * share.since) / 3600 AS gpu_hours,
        sum(attempt.cost * share.since) AS cost
    FROM attempt
    JOIN lane ON lane.id = attempt.lane_id
    JOIN due ON due.owner = lane.owner AND due.limited
    CROSS JOIN LATERAL (
        SELECT forge_share_since(due.month, attempt.claimed_at, attempt.finished_at) AS since
    ) AS share
    -- By a row, as whatever locks: see `thin`.
    WHERE (attempt.finished_at, 0) >= ((SELECT min(since) FROM due), 0)
        -- Not for the index, which would be searched for each owner.
        AND attempt.finished_at + interval '0s' >= due.since
    GROUP BY 1, 2
),
held AS MATERIALIZED (
    SELECT
        due.owner,
        sum(
            shape.gpus * extract(EPOCH FROM due.now - greatest(lease.claimed_at, due.month))
        ) / 3600 AS gpu_hours,
        sum(
            forge_cost(lease.worker_id, greatest(lease.claimed_at, due.month), due.now)
        ) AS cost
    FROM lease
    JOIN lane ON lane.id = lease.lane_id
    JOIN shape ON shape.id = lane.shape_id
    JOIN due ON due.owner = lane.owner AND due.limited
    GROUP BY 1
),
counted AS MATERIALIZED (
    SELECT
        due.*,
        due.gpu_hours + coalesce(before.gpu_hours, 0) AS settled_gpu_hours,
        due.cost + coalesce(before.cost, 0) AS settled_cost,
        due.gpu_hours + coalesce(before.gpu_hours, 0) + coalesce(late.gpu_hours, 0)
            + coalesce(held.gpu_hours, 0) AS used_gpu_hours,
        due.cost + coalesce(before.cost, 0) + coalesce(late.cost, 0)
            + coalesce(held.cost, 0) AS used_cost
    FROM due
    LEFT JOIN ended AS before ON before.owner = due.owner AND before.settled
    LEFT JOIN ended AS late ON late.owner = due.owner AND NOT late.settled
    LEFT JOIN held ON held.owner = due.owner
),
teams AS MATERIALIZED (
    SELECT
        t.name, t.gpu_hours_per_month, t.cost_per_month, t.when_spent, t.spent_at, used.gpu_hours,
        used.cost,
        coalesce(
            used.gpu_hours >= t.gpu_hours_per_month OR used.cost >= t.cost_per_month, false
        ) AS spent
    FROM team AS t
    LEFT JOIN (
        SELECT team, sum(used_gpu_hours) AS gpu_hours, sum(used_cost) AS cost
        FROM counted GROUP BY team
    ) AS used ON used.team = t.name
    WHERE %(owner)s::text IS NULL OR t.name = forge_team(%(owner)s)
),
judged AS MATERIALIZED (
    SELECT
        counted.*, own.spent,
        (own.spent AND counted.when_spent <> 'warn')
            OR coalesce(teams.spent AND teams.when_spent <> 'warn', false) AS pauses,
        (own.spent AND counted.when_spent = 'preempt')
            OR coalesce(teams.spent AND teams.when_spent = 'preempt', false) AS preempts
    FROM counted
    LEFT JOIN teams ON teams.name = counted.team
    CROSS JOIN LATERAL (
        SELECT coalesce(
            counted.used_gpu_hours >= counted.gpu_hours_per_month
            OR counted.used_cost >= counted.cost_per_month, false
        ) AS spent
    ) AS own
),
kept AS (
    INSERT INTO spending (
        owner, settled_at, settled_gpu_hours, settled_cost, gpu_hours, cost, spent_at
    )
    SELECT
        owner, settled_at, settled_gpu_hours, settled_cost, used_gpu_hours, used_cost,
        CASE WHEN spent THEN coalesce(spent_at, now) END
    FROM judged WHERE limited
    ON CONFLICT (owner) DO UPDATE
        SET
            settled_at = excluded.settled_at, settled_gpu_hours = excluded.settled_gpu_hours,
            settled_cost = excluded.settled_cost, gpu_hours = excluded.gpu_hours,
            cost = excluded.cost, spent_at = excluded.spent_at
),
forgotten AS (
    DELETE FROM spending USING judged
    WHERE spending.owner = judged.owner AND NOT judged.limited
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT
        now, %(actor)s, CASE WHEN spent THEN 'budget spent' ELSE 'budget renewed' END,
        jsonb_build_object(
            'owner', owner, 'gpu_hours', used_gpu_hours, 'cost', used_cost,
            'gpu_hours_per_month', gpu_hours_per_month, 'cost_per_month', cost_per_month,
            'when_spent', when_spent
        )
    FROM judged WHERE spent <> (spent_at IS NOT NULL)
    UNION ALL
    SELECT
        clock.now, %(actor)s, CASE WHEN spent THEN 'budget spent' ELSE 'budget renewed' END,
        jsonb_build_object(
            'team', name, 'gpu_hours', gpu_hours, 'cost', cost,
            'gpu_hours_per_month', gpu_hours_per_month, 'cost_per_month', cost_per_month,
            'when_spent', when_spent
        )
    FROM teams CROSS JOIN clock WHERE spent <> (spent_at IS NOT NULL)
),
noted AS (
    UPDATE team SET spent_at = CASE WHEN teams.spent THEN clock.now END
    FROM teams CROSS JOIN clock
    WHERE team.name = teams.name AND teams.spent <> (teams.spent_at IS NOT NULL)
),
paused AS (
    UPDATE owner_quota AS o SET paused = judged.pauses
    FROM judged
    WHERE o.owner = judged.owner AND o.paused <> judged.pauses
)
SELECT
    judged.owner,
    EXISTS (
        SELECT FROM lane JOIN queue ON queue.name = lane.queue
        WHERE lane.owner = judged.owner
            AND lane.paused <> (queue.paused OR judged.pauses)
    ) AS lanes,
    ARRAY(
        SELECT lease.job_id FROM lease
        JOIN lane ON lane.id = lease.lane_id AND lane.owner = judged.owner
        WHERE judged.preempts
            AND lease.rank = 0 AND lease.over IS NULL AND lease.asked IS NULL
        ORDER BY lease.job_id
    ) AS preempted
FROM judged
