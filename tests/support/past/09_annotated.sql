-- People tag a third of all jobs, and archive a part of those that have ended: here and there, and
-- most of the newest ones.
INSERT INTO job_tag (job_id, tag, owner) SELECT id, 'paper', owner FROM job WHERE id % 3 = 0;

INSERT INTO annotation (job_id, note, archived)
SELECT outcome.job_id, 'a note', outcome.job_id % 4 = 0 OR outcome.job_id > scale.jobs * 9 / 10
FROM outcome CROSS JOIN scale
WHERE outcome.job_id % 4 = 0 OR outcome.job_id > scale.jobs * 9 / 10;
