-- Releases held jobs whose dependencies nobody settled: those beyond the bound of one release, and
-- those of a database that was restored. What `forge_settle` cannot settle must not be found.
WITH needed AS MATERIALIZED (
    SELECT needs_id, bool_or(kind = 'after') AS may_begin
    FROM dependency
    WHERE met IS NULL
    GROUP BY needs_id
),
fate AS MATERIALIZED (
    SELECT needed.needs_id, outcome.job_id IS NOT NULL AS ended
    FROM needed LEFT JOIN outcome ON outcome.job_id = needed.needs_id
    WHERE outcome.job_id IS NOT NULL
        OR needed.may_begin AND (
            EXISTS (
                SELECT FROM lease
                WHERE lease.job_id = needed.needs_id AND lease.started_at IS NOT NULL
            )
            OR EXISTS (
                SELECT FROM attempt
                WHERE attempt.job_id = needed.needs_id AND attempt.started_at IS NOT NULL
            )
        )
)
SELECT forge_release(ARRAY(
    SELECT DISTINCT edge.job_id
    FROM fate JOIN dependency AS edge ON edge.needs_id = fate.needs_id
    WHERE edge.met IS NULL AND (fate.ended OR edge.kind = 'after')
    LIMIT %(count)s
)) AS released
