-- How long jobs waited from ready to claim, by queue, owner, shape and day of the claim.
CREATE VIEW queue_wait AS
SELECT
    queue,
    owner,
    shape_id,
    day,
    count(*) AS claims,
    avg(waited_s) AS mean_s,
    percentile_cont(0.5) WITHIN GROUP (ORDER BY waited_s) AS median_s,
    percentile_cont(0.95) WITHIN GROUP (ORDER BY waited_s) AS p95_s,
    max(waited_s) AS max_s
FROM claims
GROUP BY queue, owner, shape_id, day;
