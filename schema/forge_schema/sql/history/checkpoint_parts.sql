-- The parts of a complete checkpoint of a job, one for each rank, in their order.
WITH kept AS MATERIALIZED (
    SELECT * FROM forge_complete_checkpoints(%(job_id)s) AS one
    WHERE one.attempt = %(attempt)s AND one.number = %(number)s
)
SELECT rank, key FROM kept
UNION ALL
SELECT part.rank, part.key
FROM checkpoint AS one
JOIN kept ON kept.token = one.token
CROSS JOIN LATERAL forge_companions(one) AS part
WHERE one.job_id = %(job_id)s AND one.rank = 0 AND one.number = %(number)s
ORDER BY rank
