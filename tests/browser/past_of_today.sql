-- Has the newest of a past end within the last hour, and says of each attempt what was the matter.
-- History is refused to change; a past that was made up has no triggers.
SET session_replication_role = replica;
CREATE TEMP TABLE late AS
SELECT
    job_id, token,
    forge_now() - row_number() OVER (ORDER BY attempt.finished_at DESC) ^ 1.2 * interval '22 seconds'
        - attempt.finished_at AS by
FROM attempt JOIN outcome USING (job_id, token)
ORDER BY attempt.finished_at DESC
LIMIT 70;
UPDATE attempt_row SET
    ready_at = ready_at + by, claimed_at = claimed_at + by, started_at = started_at + by,
    finished_at = attempt_row.finished_at + by
FROM late WHERE attempt_row.job_id = late.job_id AND attempt_row.token = late.token;
UPDATE outcome SET
    ready_at = ready_at + by, claimed_at = claimed_at + by, started_at = started_at + by,
    finished_at = finished_at + by
FROM late WHERE outcome.job_id = late.job_id;
UPDATE attempt_row SET detail = CASE reason
    WHEN 'oom' THEN 'the kernel ended it at 64 GiB'
    WHEN 'gpu_fault' THEN 'XID 79: GPU has fallen off the bus'
    WHEN 'worker_lost' THEN 'its lease ran out'
    WHEN 'disk_full' THEN 'No space left on device'
    WHEN 'stalled' THEN 'no progress reported for 900 s'
END
WHERE detail IS NOT NULL;
-- Nothing waits for months, and most of the fleet is at work.
CREATE TEMP TABLE waits AS
SELECT job_id, forge_now() - (1 + job_id % 47) * interval '55 seconds' AS since FROM ready;
UPDATE ready SET ready_at = since FROM waits WHERE ready.job_id = waits.job_id;
UPDATE job SET submitted_at = since FROM waits WHERE job.id = waits.job_id;
CREATE TEMP TABLE gone AS
SELECT job_id FROM ready WHERE job_id % 9 <> 0 OR job_id < (SELECT min(job_id) FROM lease) - 500;
DELETE FROM ready USING gone WHERE ready.job_id = gone.job_id;
DELETE FROM job USING gone WHERE job.id = gone.job_id;
DELETE FROM worker
WHERE id % 97 <> 0 AND NOT EXISTS (SELECT FROM lease WHERE worker_id = worker.id);
UPDATE worker SET gpus = coalesce((
    SELECT jsonb_agg(gpu) FROM jsonb_array_elements(worker.gpus) WITH ORDINALITY AS g (gpu, nth)
    WHERE lease.devices @> ARRAY[gpu ->> 'uuid'] OR (nth = 8 AND worker.id % 9 = 0)
), '[]')
FROM lease WHERE lease.worker_id = worker.id;
-- The machines were never off.
UPDATE sweeper SET ticked_at = forge_now();
