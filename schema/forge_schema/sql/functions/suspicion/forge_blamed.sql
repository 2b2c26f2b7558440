-- Workers that may be at fault, since they were judged last: on each, jobs of at least two owners failed
-- that have succeeded on another worker, or have run there ten times as long by now; and no more jobs
-- than that succeeded on it. Reads the newest failures of six hours, and never more than 2000.
CREATE OR REPLACE FUNCTION forge_blamed() RETURNS TABLE (worker_id bigint, owners bigint, jobs bigint)
LANGUAGE sql STABLE AS $$
    WITH failed AS MATERIALIZED (
        SELECT
            ended.job_id, ended.worker_id, ended.lane_id,
            ended.finished_at - coalesce(ended.started_at, ended.claimed_at) AS ran
        FROM attempt_row AS ended
        JOIN worker ON worker.id = ended.worker_id
        -- The subquery is what lets an index find them: the time itself changes from row to row.
        WHERE ended.finished_at > (SELECT forge_now() - interval '6 hours') AND ended.rank = 0
            AND forge_accuses(ended.reason)
            AND ended.claimed_at >= coalesce(worker.judged_at, '-infinity')
            AND worker.suspected_for IS NULL AND worker.status <> 'offline'
        ORDER BY ended.finished_at DESC
        LIMIT 2000
    ),
    by_worker AS MATERIALIZED (
        SELECT
            failed.worker_id, count(DISTINCT lane.owner) AS owners,
            count(DISTINCT failed.job_id) AS jobs
        FROM failed
        JOIN lane ON lane.id = failed.lane_id
        WHERE EXISTS (
                SELECT FROM outcome
                WHERE outcome.job_id = failed.job_id AND outcome.state = 'succeeded'
                    AND outcome.worker_id <> failed.worker_id
            )
            OR EXISTS (
                SELECT FROM lease
                WHERE lease.job_id = failed.job_id AND lease.rank = 0
                    AND lease.worker_id <> failed.worker_id
                    AND lease.started_at < forge_now() - greatest(10 * ran, interval '1 minute')
            )
        GROUP BY failed.worker_id
        HAVING count(DISTINCT lane.owner) > 1
    )
    SELECT by_worker.* FROM by_worker
    JOIN worker ON worker.id = by_worker.worker_id
    WHERE by_worker.jobs >= (
        SELECT count(*) FROM (
            SELECT FROM outcome
            WHERE outcome.worker_id = by_worker.worker_id AND outcome.state = 'succeeded'
                AND outcome.finished_at > greatest(
                    worker.judged_at, (SELECT forge_now() - interval '6 hours')
                )
            LIMIT by_worker.jobs + 1
        ) AS succeeded
    )
$$;
