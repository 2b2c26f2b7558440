-- On how many of the workers that are drafted for a gang there is room for a member once some jobs have
-- left.
CREATE OR REPLACE FUNCTION forge_members_without(wanted integer, gang bigint, jobs bigint[])
RETURNS bigint
LANGUAGE sql STABLE AS $$
    SELECT count(*) FROM draft JOIN worker ON worker.id = draft.worker_id
    WHERE draft.job_id = gang AND forge_joins(worker)
        AND forge_fits_without(wanted, worker.id, jobs)
$$;
