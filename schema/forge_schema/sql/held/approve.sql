-- Approves jobs by id. Idempotent: a job that was approved before is approved. The first row of
-- each job counts; a job that needed no approval, or ended without it, has only its last.
SELECT unnest(forge_approve(%(job_ids)s::bigint[], %(actor)s)) AS job_id, 'approved' AS became
UNION ALL
SELECT event.job_id, 'approved' FROM event
WHERE event.job_id = ANY(%(job_ids)s::bigint[]) AND event.action = 'approved'
UNION ALL
SELECT id, 'unasked' FROM job WHERE id = ANY(%(job_ids)s::bigint[])
