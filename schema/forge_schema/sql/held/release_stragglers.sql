-- Releases held jobs whose dependencies nobody settled: those beyond the bound of one release, and
-- those of a database that was restored.
SELECT forge_release(ARRAY(
    SELECT DISTINCT edge.job_id
    FROM dependency AS edge
    JOIN outcome ON outcome.job_id = edge.needs_id
    WHERE edge.met IS NULL
    LIMIT %(count)s
)) AS released
