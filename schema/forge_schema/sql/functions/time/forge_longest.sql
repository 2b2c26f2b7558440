-- The most seconds for which a job keeps its room: its time limit, its grace period, and half a minute
-- in which its worker prepares it; NULL without a limit.
CREATE OR REPLACE FUNCTION forge_longest(job_id bigint) RETURNS double precision
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT 30 + timeout_s + coalesce((spec ->> 'grace_s')::float8, 0) FROM job WHERE id = $1
$$;
