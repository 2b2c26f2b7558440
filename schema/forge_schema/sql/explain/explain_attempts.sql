-- The ends of a job's last attempts, newest first; of a run on several machines, the end of the member
-- that failed first.
SELECT
    ended.attempt, ended.rank, coalesce(worker.name, former_worker.name) AS worker,
    ended.reason, ended.exit_code, ended.detail, ended.finished_at,
    extract(EPOCH FROM ended.finished_at - ended.claimed_at)::float8 AS held_s
FROM (
    SELECT DISTINCT ON (member.attempt) member.*
    FROM (
        SELECT *, reason NOT IN ('succeeded', 'run_ended') AS decides
        FROM attempt WHERE job_id = %(job_id)s
    ) AS member
    ORDER BY
        member.attempt DESC, member.decides DESC,
        CASE WHEN member.decides THEN member.finished_at END, member.rank
    LIMIT %(count)s
) AS ended
LEFT JOIN worker ON worker.id = ended.worker_id
LEFT JOIN former_worker ON former_worker.id = ended.worker_id
ORDER BY ended.attempt DESC
