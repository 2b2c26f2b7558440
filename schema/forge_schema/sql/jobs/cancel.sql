-- Cancels jobs by id, of one owner or of any: waiting jobs at once, running ones by asking their
-- workers. Idempotent. A `reason`, or null, is for the audit trail, and the detail of jobs that were
-- not running. The first row of each job counts. A job that was changing state has only its
-- last row, `moved`, and the caller tries again.
-- Locks: ready, scheduled, lease, held, each in the order of job ids; then draft.
WITH wanted AS MATERIALIZED (
    SELECT id, lane_id, nice FROM job
    WHERE id = ANY(%(job_ids)s::bigint[]) AND (%(owner)s::text IS NULL OR owner = %(owner)s)
),
waits AS MATERIALIZED (
    SELECT ready.lane_id, ready.nice, ready.job_id
    FROM wanted JOIN ready
        ON ready.lane_id = wanted.lane_id AND ready.nice = wanted.nice AND ready.job_id = wanted.id
    ORDER BY ready.job_id
    FOR UPDATE OF ready
),
from_ready AS (
    DELETE FROM ready USING waits
    WHERE ready.lane_id = waits.lane_id AND ready.nice = waits.nice AND ready.job_id = waits.job_id
    RETURNING ready.job_id, ready.attempt
),
later AS MATERIALIZED (
    SELECT scheduled.job_id FROM wanted JOIN scheduled ON scheduled.job_id = wanted.id
    ORDER BY scheduled.job_id
    FOR UPDATE OF scheduled
),
from_scheduled AS (
    DELETE FROM scheduled USING later WHERE scheduled.job_id = later.job_id
    RETURNING scheduled.job_id, scheduled.attempt
),
leased AS MATERIALIZED (
    SELECT lease.job_id, lease.rank, lease.worker_id, lease.asked
    FROM wanted JOIN lease ON lease.job_id = wanted.id
    ORDER BY lease.job_id, lease.rank
    FOR UPDATE OF lease
),
kept AS MATERIALIZED (
    SELECT held.job_id FROM wanted JOIN held ON held.job_id = wanted.id
    -- The count has the leases locked first, as an end does.
    WHERE (SELECT count(*) FROM leased) >= 0
    ORDER BY held.job_id
    FOR UPDATE OF held
),
from_held AS (
    DELETE FROM held USING kept WHERE held.job_id = kept.job_id
    RETURNING
        held.job_id, held.attempt,
        coalesce(
            %(reason)s::text, CASE WHEN held.approval IS NOT NULL THEN 'it was not approved' END
        ) AS detail
),
unsettled AS (
    UPDATE dependency SET met = false FROM from_held
    -- By `met IS NULL`, a plan may read those of all jobs for each of them.
    WHERE dependency.job_id = from_held.job_id AND num_nulls(dependency.met) = 1
),
ended AS (
    INSERT INTO outcome (job_id, state, reason, attempt, detail, finished_at)
    SELECT job_id, 'cancelled', 'cancelled', attempt, detail, forge_now()
    FROM (
        SELECT job_id, attempt, %(reason)s::text AS detail FROM from_ready
        UNION ALL SELECT job_id, attempt, %(reason)s::text FROM from_scheduled
        UNION ALL SELECT * FROM from_held
    ) AS waiting
    RETURNING job_id
),
asked AS (
    UPDATE lease SET asked = 'cancelled'
    FROM leased
    WHERE leased.asked IS DISTINCT FROM 'cancelled'
        AND lease.job_id = leased.job_id AND lease.rank = leased.rank
    RETURNING lease.job_id
),
-- Machines that keep room for a gang need not any more.
released AS (
    DELETE FROM draft USING wanted WHERE draft.job_id = wanted.id
),
why AS (
    SELECT jsonb_build_object('reason', said) AS detail
    FROM (SELECT %(reason)s::text AS said) AS given WHERE said IS NOT NULL
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT forge_now(), %(actor)s, 'cancelled', job_id, (SELECT detail FROM why) FROM ended
    UNION ALL
    SELECT forge_now(), %(actor)s, 'asked to cancel', job_id, (SELECT detail FROM why)
    FROM (SELECT DISTINCT job_id FROM asked) AS of_jobs
)
SELECT
    job_id, 'cancelled' AS became, 'cancelled' AS state, NULL
FROM ended
UNION ALL
SELECT job_id, 'running', 'running', pg_notify('forge', 'asked:' || worker_id) FROM leased
UNION ALL
SELECT outcome.job_id, 'over', outcome.state::text, NULL
FROM wanted JOIN outcome ON outcome.job_id = wanted.id
UNION ALL
SELECT id, 'moved', NULL, NULL FROM wanted
