-- Stores an attempt that a version before 0026 inserts into what was a table then. It writes the
-- outcome of a success itself.
CREATE OR REPLACE FUNCTION forge_add_attempt() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    NEW.devices := coalesce(NEW.devices, '{}');
    NEW.gpu_seconds := coalesce(NEW.gpu_seconds, 0);
    INSERT INTO attempt_row (
        job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost, cpu_seconds,
        peak_memory_mb, peak_vram_mb, checkpoint_at
    )
    VALUES (
        NEW.job_id, NEW.attempt, NEW.rank, NEW.finished_at, NEW.token, NEW.nonce, NEW.worker_id,
        NEW.lane_id, NEW.ready_at, NEW.claimed_at, NEW.started_at, NEW.reason, NEW.exit_code,
        NEW.detail, NEW.devices, NEW.gpu_seconds, NEW.energy_j, NEW.cost, NEW.cpu_seconds,
        NEW.peak_memory_mb, NEW.peak_vram_mb, NEW.checkpoint_at
    );
    RETURN NEW;
END $$;
