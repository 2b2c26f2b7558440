-- Drafts the machines that gangs in their turn still lack, now that a worker has come: it would take
-- another job first. While a sweeper drafts, that sees it too.
-- Locks: sweeper, skipping locked; then draft.
SELECT sum(forge_fill(forming.job_id)) AS drafted
FROM (SELECT FROM sweeper FOR UPDATE SKIP LOCKED) AS alone
JOIN forming ON forming.rests_until IS NULL
    AND NOT EXISTS (SELECT FROM lease WHERE lease.job_id = forming.job_id)
