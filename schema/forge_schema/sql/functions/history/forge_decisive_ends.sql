-- How each attempt of a job ended: of a run on several machines, the end of the member that failed
-- first.
CREATE OR REPLACE FUNCTION forge_decisive_ends(job bigint)
RETURNS TABLE (
    attempt smallint, rank smallint, worker_id bigint, claimed_at timestamptz,
    finished_at timestamptz, reason reason, exit_code integer, detail text
)
LANGUAGE sql STABLE AS $$
    SELECT DISTINCT ON (member.attempt)
        member.attempt, member.rank, member.worker_id, member.claimed_at, member.finished_at,
        member.reason, member.exit_code, member.detail
    FROM (
        SELECT *, ended.reason NOT IN ('succeeded', 'run_ended') AS decides
        FROM attempt AS ended WHERE ended.job_id = job
    ) AS member
    ORDER BY
        member.attempt, member.decides DESC,
        CASE WHEN member.decides THEN member.finished_at END, member.rank
$$;
