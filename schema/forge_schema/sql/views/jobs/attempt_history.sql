-- Every finished attempt: who ran it, how long it waited and ran, and why it ended.
CREATE VIEW attempt_history AS
SELECT
    attempt.job_id,
    job.name,
    job.owner,
    lane.queue,
    attempt.attempt,
    attempt.rank,
    attempt.token,
    coalesce(worker.name, former_worker.name) AS worker,
    attempt.reason,
    attempt.exit_code,
    attempt.detail,
    attempt.ready_at,
    attempt.claimed_at,
    attempt.started_at,
    attempt.finished_at,
    extract(EPOCH FROM attempt.claimed_at - attempt.ready_at)::double precision AS waited_s,
    extract(EPOCH FROM attempt.finished_at - attempt.claimed_at)::double precision AS held_s,
    attempt.devices,
    attempt.gpu_seconds,
    attempt.cpu_seconds,
    attempt.peak_memory_mb,
    attempt.peak_vram_mb,
    attempt.energy_j,
    attempt.cost,
    outcome.job_id IS NOT NULL AND outcome.token IS NOT DISTINCT FROM attempt.token AS accepted
FROM attempt
JOIN job ON job.id = attempt.job_id
JOIN lane ON lane.id = attempt.lane_id
LEFT JOIN outcome ON outcome.job_id = attempt.job_id
LEFT JOIN worker ON worker.id = attempt.worker_id
LEFT JOIN former_worker ON former_worker.id = attempt.worker_id;
