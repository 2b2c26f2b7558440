-- The phase of a job, by the lease of its first rank: of several members, that of the one that is
-- furthest behind, as the job is not finishing while any of them still runs.
CREATE OR REPLACE FUNCTION forge_phase(lease lease) RETURNS phase
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE
        WHEN lease.nodes > 1 THEN coalesce((
            SELECT min(member.phase) FROM lease AS member
            WHERE member.job_id = lease.job_id AND member.over IS NULL
        ), lease.phase)
        ELSE lease.phase
    END
$$;
