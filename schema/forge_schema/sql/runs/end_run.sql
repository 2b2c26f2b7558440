-- Ends the leases of the other members of a run that `finish` ends next, and writes the attempt of
-- each. One that failed because of another one is recorded as `run_ended`, and so is one that
-- succeeded in a run that did not (`good`): its work is done again. If members could not
-- reach others (`unreached`), these have failed, and not those that noticed it. The work of all ranks
-- counts up to the run's last checkpoint if the member that decided was interrupted, which the
-- rank that stored it cannot tell the others.
-- The caller holds the run's lock.
-- Locks: lease.
WITH gone AS (
    DELETE FROM lease
    WHERE job_id = %(job_id)s AND attempt = %(attempt)s AND over IS NOT NULL
        AND token <> %(token)s
    RETURNING *
)
INSERT INTO attempt_row (
    job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
    started_at, checkpoint_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost,
    cpu_seconds, peak_memory_mb, peak_vram_mb
)
SELECT
    gone.job_id, gone.attempt, gone.rank, ended.at, gone.token, gone.nonce,
    gone.worker_id, gone.lane_id, gone.ready_at, gone.claimed_at, gone.started_at,
    CASE WHEN %(interrupted)s THEN (
        SELECT max(kept.created_at) FROM forge_complete_checkpoints(gone.job_id) AS kept
        WHERE kept.attempt = gone.attempt
    ) END,
    CASE
        WHEN unreached.rank IS NOT NULL THEN 'preflight_failed'
        WHEN (gone.over ->> 'level')::integer > 0
            OR %(unreached)s AND gone.over ->> 'reason' = 'preflight_failed'
            OR NOT %(good)s AND gone.over ->> 'reason' = 'succeeded' THEN 'run_ended'
        ELSE gone.over ->> 'reason'
    END::reason,
    (gone.over ->> 'exit_code')::integer, gone.over ->> 'detail', gone.devices,
    forge_gpu_seconds(used.gpu_seconds, gone.devices, gone.claimed_at, ended.at), used.energy_j,
    coalesce(used.cost, forge_cost(gone.worker_id, gone.claimed_at, ended.at)), used.cpu_seconds,
    used.peak_memory_mb, used.peak_vram_mb
FROM gone
CROSS JOIN LATERAL (
    SELECT greatest((gone.over ->> 'at')::timestamptz, gone.claimed_at) AS at
) AS ended
LEFT JOIN forge_unreached(%(job_id)s) AS unreached
    ON %(unreached)s AND unreached.rank = gone.rank
CROSS JOIN LATERAL jsonb_to_record(gone.over -> 'usage') AS used (
    gpu_seconds float8, energy_j float8, cost float8, cpu_seconds float8,
    peak_memory_mb integer, peak_vram_mb integer
)
