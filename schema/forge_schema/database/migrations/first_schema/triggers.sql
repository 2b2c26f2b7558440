-- Attempts as one view, and triggers: the history is append-only, and jobs that wait are released.

-- The condition is outside the union, so that the planner still finds a job's attempts by an index
-- of each table where it joins them. By the constant, a report on interruptions skips outcomes.
CREATE VIEW attempt AS
SELECT * FROM (
    SELECT
        job_id, attempt, rank, finished_at, token, nonce, worker_id, lane_id, ready_at, claimed_at,
        started_at, reason, exit_code, detail, devices, gpu_seconds, energy_j, cost, cpu_seconds,
        peak_memory_mb, peak_vram_mb, checkpoint_at
    FROM attempt_row
    UNION ALL
    SELECT
        job_id, attempt, 0::smallint, finished_at, token, nonce, worker_id, lane_id, ready_at,
        claimed_at, started_at, 'succeeded', exit_code, detail, devices, gpu_seconds, energy_j,
        cost, cpu_seconds, peak_memory_mb, peak_vram_mb, checkpoint_at
    FROM outcome
) AS both_tables
WHERE worker_id IS NOT NULL;

CREATE TRIGGER attempt_row_append_only BEFORE UPDATE OR DELETE ON attempt_row
    FOR EACH ROW EXECUTE FUNCTION forge_refuse_change();
CREATE TRIGGER event_append_only BEFORE UPDATE OR DELETE ON event
    FOR EACH ROW EXECUTE FUNCTION forge_refuse_change();
CREATE TRIGGER outcome_append_only BEFORE UPDATE OR DELETE ON outcome
    FOR EACH ROW WHEN (old.worker_id IS NOT NULL) EXECUTE FUNCTION forge_keep_success();

-- Partitions inherit only row-level triggers.
CREATE TRIGGER attempt_row_no_truncate BEFORE TRUNCATE ON attempt_row
    FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change();
CREATE TRIGGER attempt_row_no_truncate BEFORE TRUNCATE ON attempt_row_default
    FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change();
CREATE TRIGGER event_no_truncate BEFORE TRUNCATE ON event
    FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change();
CREATE TRIGGER event_no_truncate BEFORE TRUNCATE ON event_default
    FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change();
CREATE TRIGGER outcome_no_truncate BEFORE TRUNCATE ON outcome
    FOR EACH STATEMENT EXECUTE FUNCTION forge_refuse_change();

CREATE TRIGGER held_release AFTER INSERT ON held REFERENCING NEW TABLE AS added
    FOR EACH STATEMENT EXECUTE FUNCTION forge_job_held();
CREATE TRIGGER outcome_release AFTER INSERT ON outcome REFERENCING NEW TABLE AS ended
    FOR EACH STATEMENT EXECUTE FUNCTION forge_job_ended();
CREATE TRIGGER lease_release AFTER UPDATE OF started_at ON lease
    FOR EACH ROW WHEN (old.started_at IS NULL AND new.started_at IS NOT NULL)
    EXECUTE FUNCTION forge_job_begun();
