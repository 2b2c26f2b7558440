-- Whether a monthly partition has a row of a job that is still there. It looks up the jobs up to
-- the newest one of that month: once those have left, few or none.
CREATE OR REPLACE FUNCTION forge_has_jobs(part text) RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    found boolean;
BEGIN
    EXECUTE format(
        'SELECT EXISTS ('
        ' SELECT FROM ('
        '  SELECT id FROM job WHERE id <= (SELECT max(job_id) FROM %1$I) ORDER BY id OFFSET 0'
        ' ) AS there CROSS JOIN LATERAL ('
        '  SELECT FROM %1$I AS part WHERE part.job_id = there.id LIMIT 1'
        ' ) AS row_of_it)', part
    ) INTO found;
    RETURN found;
END $$;
