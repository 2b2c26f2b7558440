-- The cost of jobs by owner, queue, job and day of the attempts' end; every rank of a gang counts.
-- Null if no worker had a price. A job that was removed has no name any more.
CREATE VIEW cost AS
SELECT
    spent.owner,
    spent.queue,
    spent.job_id,
    -- Only for the rows that are shown: a join would read every job for them.
    (SELECT job.name FROM job WHERE job.id = spent.job_id) AS name,
    spent.day,
    spent.attempts,
    spent.unpriced,
    spent.cost,
    spent.useful_cost,
    spent.cost - spent.useful_cost AS wasted_cost,
    spent.useful_cost / nullif(spent.cost, 0) AS goodput
FROM (
    SELECT
        lane.owner,
        lane.queue,
        attempt.job_id,
        (attempt.finished_at AT TIME ZONE 'UTC')::date AS day,
        count(*) FILTER (WHERE attempt.rank = 0) AS attempts,
        count(*) FILTER (WHERE attempt.cost IS NULL) AS unpriced,
        sum(attempt.cost) AS cost,
        sum(attempt.cost * forge_useful(
            attempt.reason, attempt.claimed_at, attempt.checkpoint_at, attempt.finished_at
        )) AS useful_cost
    FROM attempt
    JOIN lane ON lane.id = attempt.lane_id
    GROUP BY
        lane.owner, lane.queue, attempt.job_id, (attempt.finished_at AT TIME ZONE 'UTC')::date
) AS spent;
