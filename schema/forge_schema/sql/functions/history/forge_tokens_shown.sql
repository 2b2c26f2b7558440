-- The tokens of the attempt whose results and files a job shows: of all its ranks, of the accepted
-- attempt, or of the last one that left files while there is no outcome.
CREATE OR REPLACE FUNCTION forge_tokens_shown(job bigint) RETURNS bigint[]
LANGUAGE sql STABLE AS $$
    WITH accepted AS MATERIALIZED (
        SELECT token, attempt FROM outcome WHERE job_id = job AND token IS NOT NULL
    ),
    shown AS MATERIALIZED (
        SELECT token, attempt FROM accepted
        UNION ALL
        (
            SELECT token, attempt FROM artifact
            WHERE job_id = job AND NOT EXISTS (SELECT FROM accepted)
            ORDER BY token DESC
            LIMIT 1
        )
    )
    SELECT ARRAY(
        SELECT token FROM shown
        UNION
        SELECT attempt.token FROM shown JOIN attempt
            ON attempt.job_id = job AND attempt.attempt = shown.attempt
        UNION
        SELECT lease.token FROM shown JOIN lease
            ON lease.job_id = job AND lease.attempt = shown.attempt
    )
$$;
