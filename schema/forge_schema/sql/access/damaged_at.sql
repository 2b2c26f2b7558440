-- When a worker last found the stored bundle or image of this SHA-256 damaged, according to the
-- newest jobs that ended so. The words are the workers' own.
SELECT max(newest.finished_at) AS at
FROM unnest(ARRAY['bundle_corrupt', 'image_missing']::reason[]) AS kind (reason)
CROSS JOIN LATERAL (
    SELECT outcome.job_id, outcome.finished_at, outcome.detail
    FROM outcome
    WHERE outcome.state <> 'succeeded' AND outcome.reason = kind.reason
    ORDER BY outcome.job_id DESC
    LIMIT 200
) AS newest
INNER JOIN job ON job.id = newest.job_id
WHERE
    newest.detail LIKE '%the store''s copy of %'
    AND %(sha256)s IN (job.bundle_digest, job.spec ->> 'image_tar')
