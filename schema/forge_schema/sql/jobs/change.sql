-- Changes a job that waits: its lane, its priority, and what else of its request is given. It keeps
-- its place, since jobs of one priority go by their ids. One that may spend more than before, and more
-- than its owner may without asking, is held until it is approved. One that has run before `asks` in
-- vain and is left as it was, since a held job has no counts of earlier attempts. Nothing is returned if the job does not wait,
-- or was changed since it was read as this `version`.
-- Its row in `ready` is always written anew: a claim that has read the request as it was finds it gone.
-- Locks: job, then ready, scheduled, held, as a cancellation does; after that, forming, draft and lines.
WITH wanted AS MATERIALIZED (
    SELECT
        id, lane_id, nice, owner, timeout_s, (spec ->> 'max_nodes')::integer AS machines,
        forge_parts(owner, bundle_digest, spec) AS parts
    FROM job
    WHERE id = %(job_id)s AND xmin::text = %(version)s
    FOR NO KEY UPDATE
),
waits AS MATERIALIZED (
    SELECT ready.lane_id, ready.nice, ready.job_id, ready.attempt
    FROM wanted JOIN ready
        ON ready.lane_id = wanted.lane_id AND ready.nice = wanted.nice AND ready.job_id = wanted.id
    FOR UPDATE OF ready
),
later AS MATERIALIZED (
    SELECT scheduled.job_id, scheduled.attempt
    FROM wanted JOIN scheduled ON scheduled.job_id = wanted.id
    FOR UPDATE OF scheduled
),
kept AS MATERIALIZED (
    SELECT held.job_id, held.attempt, held.approval
    FROM wanted JOIN held ON held.job_id = wanted.id
    FOR UPDATE OF held
),
place AS MATERIALIZED (
    SELECT job_id, attempt, false AS held, NULL::jsonb AS approval FROM waits
    UNION ALL SELECT job_id, attempt, false, NULL FROM later
    UNION ALL SELECT job_id, attempt, true, approval FROM kept
),
judged AS MATERIALIZED (
    SELECT
        place.*, wanted.parts,
        CASE
            WHEN wanted.lane_id = %(lane_id)s AND wanted.timeout_s IS NOT DISTINCT FROM %(timeout_s)s
                THEN place.approval
            -- The amounts of a request of many were judged together.
            WHEN (place.approval ->> 'jobs')::bigint > 1
                THEN place.approval || jsonb_build_object('timeout_s', %(timeout_s)s::integer)
            WHEN place.approval IS NOT NULL
                OR after.gpu_hours > before.gpu_hours OR after.cost > before.cost
                THEN forge_ask(
                    wanted.owner, %(timeout_s)s, 1,
                    after.gpu_hours, after.gpu_hours, after.cost, after.cost
                )
        END AS asked
    FROM place
    JOIN wanted ON wanted.id = place.job_id
    CROSS JOIN LATERAL forge_may_spend(wanted.lane_id, wanted.timeout_s, wanted.machines) AS before
    CROSS JOIN LATERAL forge_may_spend(%(lane_id)s, %(timeout_s)s, wanted.machines) AS after
),
allowed AS MATERIALIZED (
    SELECT * FROM judged WHERE asked IS NULL OR held OR attempt = 0
),
changed AS (
    UPDATE job
    SET lane_id = %(lane_id)s, nice = %(nice)s, timeout_s = %(timeout_s)s,
        max_failures = %(max_failures)s, max_losses = %(max_losses)s,
        max_preemptions = %(max_preemptions)s, backoff_s = %(backoff_s)s,
        spec = (job.spec - %(removed)s::text[]) || %(added)s
    FROM allowed
    WHERE job.id = allowed.job_id
),
now_ready AS (
    UPDATE ready SET lane_id = %(lane_id)s, nice = %(nice)s, passed_at = NULL
    FROM waits JOIN allowed ON allowed.job_id = waits.job_id AND allowed.asked IS NULL
    WHERE ready.lane_id = waits.lane_id AND ready.nice = waits.nice AND ready.job_id = waits.job_id
    RETURNING ready.lane_id, ready.parts
),
still_later AS (
    UPDATE scheduled SET lane_id = %(lane_id)s, nice = %(nice)s
    FROM allowed
    WHERE scheduled.job_id = allowed.job_id AND allowed.asked IS NULL
),
still_held AS (
    UPDATE held SET lane_id = %(lane_id)s, nice = %(nice)s, approval = allowed.asked
    FROM allowed
    WHERE held.job_id = allowed.job_id
    RETURNING held.job_id
),
-- Other machines may fit now; the queue drafts them anew.
released AS (
    DELETE FROM forming USING allowed
    WHERE forming.job_id = allowed.job_id AND forming.grows IS NULL
    RETURNING forming.job_id
),
undrafted AS (
    DELETE FROM draft USING released WHERE draft.job_id = released.job_id
),
from_ready AS (
    DELETE FROM ready USING waits JOIN allowed ON allowed.job_id = waits.job_id
    WHERE allowed.asked IS NOT NULL
        AND ready.lane_id = waits.lane_id AND ready.nice = waits.nice AND ready.job_id = waits.job_id
),
from_scheduled AS (
    DELETE FROM scheduled USING allowed
    WHERE allowed.asked IS NOT NULL AND scheduled.job_id = allowed.job_id
),
now_held AS (
    INSERT INTO held (job_id, lane_id, nice, attempt, approval)
    SELECT job_id, %(lane_id)s, %(nice)s, attempt, asked FROM allowed
    WHERE asked IS NOT NULL AND NOT held
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT forge_now(), %(actor)s, 'changed', job_id, %(detail)s::jsonb FROM allowed
    UNION ALL
    SELECT forge_now(), %(actor)s, 'asked for approval', job_id, asked FROM allowed
    WHERE asked IS NOT NULL AND approval IS NULL
)
SELECT
    asked IS NOT NULL AND attempt > 0 AND NOT held AS asks,
    (SELECT forge_wake(array_agg(lane_id), 'back', array_agg(parts::text)) FROM now_ready),
    (SELECT forge_release(array_agg(job_id)) FROM still_held)
FROM judged
