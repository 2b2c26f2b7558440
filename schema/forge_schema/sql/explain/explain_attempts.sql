-- The ends of a job's last attempts, newest first; of a run on several machines, the end of the member
-- that failed first.
SELECT
    ended.attempt, ended.rank, coalesce(worker.name, former_worker.name) AS worker,
    ended.reason, ended.exit_code, ended.detail, ended.finished_at,
    extract(EPOCH FROM ended.finished_at - ended.claimed_at)::float8 AS held_s,
    begun.from_attempt || '.' || begun.from_number AS begun_with,
    coalesce(begun.blamed, false) AS blamed
FROM forge_decisive_ends(%(job_id)s) AS ended
LEFT JOIN beginning AS begun
    ON begun.job_id = %(job_id)s AND begun.attempt = ended.attempt
LEFT JOIN worker ON worker.id = ended.worker_id
LEFT JOIN former_worker ON former_worker.id = ended.worker_id
ORDER BY ended.attempt DESC
LIMIT %(count)s
