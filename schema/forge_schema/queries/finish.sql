-- Ends attempts: each fenced lease goes, its attempt is written, and its job has its outcome,
-- backs off or is ready again. An attempt keeps when its last checkpoint was stored, since that
-- may be thinned out. With `expired_only` only leases that ran out (the sweeper's).
-- Locks: lease in the order given, then outcome.
WITH ended AS (
    DELETE FROM lease
    USING unnest(
        %(job_ids)s::bigint[], %(tokens)s::bigint[], %(nonces)s::uuid[], %(reasons)s::reason[],
        %(budgets)s::text[], %(back_off)s::boolean[], %(exit_codes)s::integer[],
        %(details)s::text[], %(gpu_seconds)s::float8[], %(energies)s::float8[],
        %(costs)s::float8[], %(cpu_seconds)s::float8[], %(peak_memories)s::integer[],
        %(peak_vrams)s::integer[]
    ) AS f (
        job_id, token, nonce, reason, budget, back_off, exit_code, detail,
        gpu_seconds, energy_j, cost, cpu_seconds, peak_memory_mb, peak_vram_mb
    )
    WHERE lease.job_id = f.job_id AND lease.token = f.token AND lease.nonce = f.nonce
        AND (NOT %(expired_only)s OR lease.expires_at < forge_now())
    RETURNING
        lease.job_id, lease.rank, lease.token, lease.nonce, lease.worker_id, lease.lane_id,
        lease.nice, lease.attempt, lease.ready_at, lease.claimed_at, lease.started_at, lease.asked,
        lease.devices,
        lease.failures + (f.budget = 'failures')::integer AS failures,
        lease.losses + (f.budget = 'losses')::integer AS losses,
        lease.preemptions + (f.budget = 'preemptions')::integer AS preemptions,
        f.reason, f.budget, f.back_off, f.exit_code, f.detail,
        f.gpu_seconds, f.energy_j, f.cost, f.cpu_seconds, f.peak_memory_mb, f.peak_vram_mb,
        forge_now() AS now
),
verdict AS (
    SELECT
        ended.*,
        CASE
            WHEN budget = 'success' THEN 'succeeded'
            WHEN budget = 'cancel' OR asked = 'cancelled' THEN 'cancelled'
            WHEN budget = 'final' OR asked = 'timeout' THEN 'failed'
            WHEN failures > max_failures OR losses > max_losses OR preemptions > max_preemptions
                THEN 'dead'
        END::state AS state,
        CASE
            WHEN back_off THEN now + make_interval(secs =>
                least(backoff_s * power(2, least(failures + losses, 20) - 1), 86400)
                * (0.5 + random())
            )
            ELSE now
        END AS run_at
    FROM ended JOIN job ON job.id = ended.job_id
),
history AS (
    INSERT INTO attempt (
        job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, checkpoint_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost,
        cpu_seconds, peak_memory_mb, peak_vram_mb
    )
    SELECT
        job_id, attempt, rank, greatest(now, claimed_at), token, nonce, worker_id, lane_id,
        ready_at, claimed_at, started_at,
        (
            SELECT max(kept.created_at) FROM checkpoint AS kept
            WHERE kept.job_id = verdict.job_id AND kept.token = verdict.token
        ),
        reason, exit_code, detail, devices, gpu_seconds,
        energy_j, cost, cpu_seconds, peak_memory_mb, peak_vram_mb
    FROM verdict
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
        attempt, token, nonce, exit_code, detail, now
    FROM verdict WHERE state IS NOT NULL
),
again AS (
    INSERT INTO ready (
        lane_id, nice, job_id, attempt, failures, losses, preemptions, ready_at
    )
    SELECT lane_id, nice, job_id, attempt, failures, losses, preemptions, now
    FROM verdict WHERE state IS NULL AND run_at <= now
),
later AS (
    INSERT INTO scheduled (
        job_id, lane_id, nice, attempt, failures, losses, preemptions, run_at
    )
    SELECT job_id, lane_id, nice, attempt, failures, losses, preemptions, run_at
    FROM verdict WHERE state IS NULL AND run_at > now
)
SELECT
    job_id, token, nonce, reason,
    coalesce(state, CASE WHEN run_at > now THEN 'scheduled' ELSE 'ready' END::state) AS state,
    pg_notify('forge', CASE WHEN state IS NULL AND run_at <= now THEN 'back' ELSE 'ready' END)
FROM verdict
