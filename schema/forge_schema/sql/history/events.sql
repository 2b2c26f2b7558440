-- The newest events of a job, the newest first; all without a count. Its submit is in its own row.
SELECT at, actor, action, worker_id, token, detail
FROM (
    SELECT id, at, actor, action, worker_id, token, detail
    FROM event
    WHERE job_id = %(job_id)s
    UNION ALL
    SELECT NULL, submitted_at, submitted_by, 'submitted', NULL, NULL, NULL
    FROM job
    WHERE id = %(job_id)s AND submitted_by IS NOT NULL
) AS told
ORDER BY at DESC, id DESC NULLS LAST
LIMIT %(count)s
