-- How many machines are kept for a job. A function that is stable: the time, which moves on within a
-- statement, would keep a view from being searched by its columns.
CREATE OR REPLACE FUNCTION forge_kept(of_job bigint) RETURNS integer
LANGUAGE sql STABLE AS $$
    SELECT count(*)::integer FROM draft WHERE draft.job_id = of_job AND draft.until > forge_now()
$$;
