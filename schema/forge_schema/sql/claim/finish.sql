-- Ends attempts: deletes each fenced lease, writes its attempt, and gives its job an outcome, lets
-- it back off or makes it ready again. A success is one row, of `outcome`. The attempt records when
-- its last checkpoint was stored, since the checkpoint may be thinned out; and what it cost also if
-- its worker cannot tell. With `expired_only`, only
-- expired leases (the sweeper's).
-- A quick exit with an error ends a job that never made progress if it is `hopeless`, or if the
-- attempt before ended the same way, unless the submitter chose the number of retries; so does a
-- quick end at the job's own limit of memory. A job of many calls says itself that all ended `as_before`.
-- A failure that is blamed on the checkpoint that the attempt began with is not charged, and the next
-- attempt begins with an older one: see `forge_step_back`.
-- A failed start that this worker would only repeat (`hopeless`) ends the job if it failed the same way
-- before, and no other worker that takes such jobs has yet to try.
-- A failed start does not count as a loss if it is the job's first on this worker and one of its
-- first three in all: a broken machine must not use up the job's losses.
-- To make room for another job, or to keep to a budget, is not counted: see `forge_made_room`.
-- The next attempt avoids workers where the job failed: see `forge_avoids`.
-- The members of a run on several machines are left alone. `settles` ends such a run, all of whose
-- members are over, by the lease of the one that decides; `end_run` has ended the others.
-- `first` says which one that was.
-- Locks: lease in the order given, then slot, checkpoint and outcome.
WITH ended AS (
    DELETE FROM lease
    USING unnest(
        %(job_ids)s::bigint[], %(tokens)s::bigint[], %(nonces)s::uuid[], %(reasons)s::reason[],
        %(budgets)s::text[], %(back_off)s::boolean[], %(exit_codes)s::integer[],
        %(details)s::text[], %(gpu_seconds)s::float8[], %(energies)s::float8[],
        %(costs)s::float8[], %(cpu_seconds)s::float8[], %(peak_memories)s::integer[],
        %(peak_vrams)s::integer[], %(hopeless)s::boolean[], %(as_before)s::boolean[]
    ) AS f (
        job_id, token, nonce, reason, budget, back_off, exit_code, detail,
        gpu_seconds, energy_j, cost, cpu_seconds, peak_memory_mb, peak_vram_mb, hopeless, as_before
    )
    WHERE lease.job_id = f.job_id AND lease.token = f.token AND lease.nonce = f.nonce
        AND (NOT %(expired_only)s OR lease.expires_at < forge_now())
        AND (lease.nodes = 1 OR %(settles)s AND lease.over IS NOT NULL)
    RETURNING
        lease.job_id, lease.rank, lease.token, lease.nonce, lease.worker_id, lease.lane_id,
        lease.nice, lease.attempt, lease.ready_at, lease.claimed_at, lease.started_at, lease.asked,
        lease.devices, lease.nodes,
        lease.failures + (f.budget = 'failures')::integer AS failures,
        lease.losses + (
            f.budget = 'losses' AND NOT (
                f.reason = 'start_failed' AND (
                    SELECT
                        count(DISTINCT earlier.attempt) < 3
                        AND coalesce(bool_and(earlier.worker_id <> lease.worker_id), true)
                    FROM attempt AS earlier
                    WHERE earlier.job_id = lease.job_id AND earlier.reason = 'start_failed'
                )
            )
        )::integer AS losses,
        lease.preemptions + (
            f.budget = 'preemptions' AND NOT (
                lease.asked IS NOT DISTINCT FROM 'preempted'
                AND forge_made_room(lease.job_id, lease.attempt)
            )
        )::integer AS preemptions,
        f.reason, f.budget, f.back_off, f.exit_code, f.detail,
        f.gpu_seconds, f.energy_j, f.cost, f.cpu_seconds, f.peak_memory_mb, f.peak_vram_mb,
        f.hopeless, f.as_before, lease.progress, forge_now() AS now,
        (lease.over ->> 'at')::timestamptz AS over_at
),
returned AS (
    UPDATE slot SET job_id = NULL FROM ended WHERE slot.job_id = ended.job_id RETURNING slot.n
),
verdict AS (
    SELECT
        ended.*, repeats.twice, refused.it AS refused, ended.failures - coalesce(back.blamed, false)::integer AS charged,
        CASE
            WHEN budget = 'success' THEN 'succeeded'
            WHEN budget = 'cancel' OR asked = 'cancelled' THEN 'cancelled'
            WHEN budget = 'final' OR asked = 'timeout' OR repeats.twice IS NOT NULL OR refused.it
                THEN 'failed'
            WHEN ended.failures - coalesce(back.blamed, false)::integer > max_failures OR losses > max_losses OR preemptions > max_preemptions
                THEN 'dead'
        END::state AS state,
        CASE
            WHEN back_off THEN now + make_interval(secs =>
                least(backoff_s * power(2, least(failures + losses, 20) - 1), 86400)
                * (0.5 + random())
            )
            ELSE now
        END AS run_at,
        greatest(coalesce(over_at, now), claimed_at) AS finished_at,
        (
            SELECT max(kept.created_at) FROM forge_complete_checkpoints(ended.job_id) AS kept
            WHERE kept.token = ended.token OR ended.nodes > 1 AND kept.attempt = ended.attempt
        ) AS checkpoint_at
    FROM ended
    JOIN job ON job.id = ended.job_id
    LEFT JOIN LATERAL (
        SELECT forge_step_back(
            ended.job_id, ended.attempt, ended.reason, ended.exit_code,
            coalesce(ended.over_at, ended.now) - coalesce(ended.started_at, ended.claimed_at),
            ended.progress, ended.failures > job.max_failures
        ) AS blamed
        WHERE ended.budget = 'failures' AND ended.asked IS NULL
    ) AS back ON true
    LEFT JOIN LATERAL (
        SELECT true AS it
        WHERE ended.reason = 'start_failed' AND ended.hopeless
            AND EXISTS (
                SELECT FROM attempt AS before
                WHERE before.job_id = ended.job_id AND before.reason = 'start_failed'
                    AND regexp_replace(before.detail, %(varying)s, '', 'gi')
                        = regexp_replace(ended.detail, %(varying)s, '', 'gi')
            )
            AND NOT EXISTS (
                SELECT FROM lane
                JOIN shape ON shape.id = lane.shape_id
                JOIN worker ON forge_takes_jobs(worker) AND forge_serves(shape, worker)
                WHERE lane.id = ended.lane_id AND worker.id <> ended.worker_id
                    AND NOT EXISTS (
                        SELECT FROM attempt AS before
                        WHERE before.job_id = ended.job_id AND before.worker_id = worker.id
                            AND before.reason = 'start_failed'
                    )
            )
    ) AS refused ON true
    LEFT JOIN LATERAL (
        SELECT NOT ended.hopeless AS twice
        WHERE ended.as_before AND ended.failures > 1 AND NOT job.spec ? 'max_failures' OR (
                ended.reason = 'exit_code'
                -- Beyond the memory that it asked for, not a share of whatever its worker has.
                OR ended.reason = 'oom' AND EXISTS (
                    SELECT FROM lane JOIN shape ON shape.id = lane.shape_id
                    WHERE lane.id = ended.lane_id AND shape.memory_mb > 0
                )
            )
            AND ended.progress IS NULL
            AND coalesce(ended.over_at, ended.now) - coalesce(ended.started_at, ended.claimed_at)
                < %(quick)s::interval
            AND NOT EXISTS (SELECT FROM metric WHERE metric.job_id = ended.job_id)
            AND NOT EXISTS (
                SELECT FROM checkpoint
                WHERE checkpoint.job_id = ended.job_id AND checkpoint.rank = 0
            )
            AND (
                -- A different earlier failure shows that another worker may get further.
                ended.hopeless AND ended.failures = 1
                OR ended.failures > 1 AND NOT job.spec ? 'max_failures' AND EXISTS (
                    SELECT FROM attempt AS before
                    WHERE before.job_id = ended.job_id
                        AND before.attempt = ended.attempt - 1
                        AND before.reason = ended.reason
                        AND before.exit_code IS NOT DISTINCT FROM ended.exit_code
                        AND regexp_replace(before.detail, %(varying)s, '', 'gi')
                            = regexp_replace(ended.detail, %(varying)s, '', 'gi')
                        AND before.finished_at - coalesce(before.started_at, before.claimed_at)
                            < %(quick)s::interval
                )
            )
    ) AS repeats ON true
),
history AS (
    INSERT INTO attempt_row (
        job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, checkpoint_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost,
        cpu_seconds, peak_memory_mb, peak_vram_mb
    )
    SELECT
        job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, checkpoint_at, reason, exit_code, detail, devices,
        forge_gpu_seconds(gpu_seconds, devices, claimed_at, finished_at), energy_j,
        coalesce(cost, forge_cost(worker_id, claimed_at, finished_at)),
        cpu_seconds, peak_memory_mb, peak_vram_mb
    FROM verdict WHERE state IS DISTINCT FROM 'succeeded'
    RETURNING job_id
),
successes AS (
    INSERT INTO outcome (
        job_id, state, attempt, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, checkpoint_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost,
        cpu_seconds, peak_memory_mb, peak_vram_mb
    )
    SELECT
        job_id, state, attempt, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, checkpoint_at, reason, exit_code, detail, devices,
        forge_gpu_seconds(gpu_seconds, devices, claimed_at, finished_at), energy_j,
        coalesce(cost, forge_cost(worker_id, claimed_at, finished_at)),
        cpu_seconds, peak_memory_mb, peak_vram_mb
    FROM verdict WHERE state = 'succeeded'
),
ends AS (
    INSERT INTO outcome (
        job_id, state, reason, attempt, token, nonce, exit_code, detail, finished_at
    )
    SELECT
        job_id, state,
        CASE
            WHEN state = 'cancelled' THEN 'cancelled'
            WHEN asked = 'timeout' AND state = 'failed' THEN 'timeout'
            ELSE reason
        END,
        attempt, token, nonce, exit_code,
        coalesce(nullif(%(first)s::text, '') || coalesce(said, ''), said),
        now
    FROM verdict
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN twice AND state = 'failed' THEN 'failed the same way twice: ' || detail
            WHEN refused AND state = 'failed' THEN 'failed to start the same way twice: ' || detail
            ELSE detail
        END AS said
    ) AS in_detail
    WHERE state <> 'succeeded'
),
again AS (
    INSERT INTO ready (
        lane_id, nice, job_id, attempt, failures, losses, preemptions, ready_at, parts, avoids
    )
    SELECT
        verdict.lane_id, verdict.nice, job_id, attempt, charged, losses, preemptions, now,
        forge_parts(job.owner, job.bundle_digest, job.spec),
        CASE WHEN budget IN ('failures', 'losses') AND nodes = 1 THEN
            forge_avoids(job_id, verdict.lane_id, worker_id, reason, detail)
        END
    FROM verdict JOIN job ON job.id = verdict.job_id
    WHERE state IS NULL AND verdict.run_at <= now
    RETURNING lane_id, parts
),
later AS (
    INSERT INTO scheduled (
        job_id, lane_id, nice, attempt, failures, losses, preemptions, run_at, avoids
    )
    SELECT
        job_id, lane_id, nice, attempt, charged, losses, preemptions, run_at,
        CASE WHEN budget IN ('failures', 'losses') AND nodes = 1 THEN
            forge_avoids(job_id, lane_id, worker_id, reason, detail)
        END
    FROM verdict WHERE state IS NULL AND run_at > now
)
SELECT
    job_id, token, nonce, reason,
    coalesce(state, CASE WHEN run_at > now THEN 'scheduled' ELSE 'ready' END::state) AS state,
    (
        SELECT forge_wake_after(
            ARRAY(SELECT lane_id FROM again), ARRAY(SELECT lane_id FROM verdict),
            ARRAY(SELECT parts::text FROM again)
        )
        -- First, as gangs are formed by what is free then, and by who was in the last run.
        FROM (SELECT count(*) FROM returned) AS slots, (SELECT count(*) FROM history) AS attempts
    )
FROM verdict
