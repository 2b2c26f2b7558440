-- Refuses impossible outcomes, releases the jobs that wait for those that ended just now, and passes
-- on their turns. The ends that a release itself stores are followed up by that release.
-- CHECKs would cost an end of one job a sixth more: Postgres reads them anew at each statement.
CREATE OR REPLACE FUNCTION forge_job_ended() RETURNS trigger
LANGUAGE plpgsql AS $$
DECLARE
    waiting bigint[];
    lines text[];
    wrong text;
BEGIN
    IF pg_trigger_depth() > 1 THEN
        RETURN NULL;
    END IF;
    -- One look at each of two indexes for each job.
    SELECT
        array_agg(found.job_id) FILTER (WHERE found.job_id IS NOT NULL),
        array_agg(found.line) FILTER (WHERE found.line IS NOT NULL), min(found.wrong)
    INTO waiting, lines, wrong
    FROM ended
    CROSS JOIN LATERAL (
        (
            SELECT job_id, NULL AS line, NULL AS wrong FROM dependency
            WHERE needs_id = ended.job_id AND met IS NULL
            LIMIT 10000
        )
        UNION ALL
        SELECT NULL, line, NULL FROM turn WHERE job_id = ended.job_id
        UNION ALL
        SELECT NULL, NULL, told.wrong
        FROM (
            SELECT
                CASE
                    WHEN (ended.state = 'succeeded') <> (ended.reason = 'succeeded')
                        OR (ended.state = 'cancelled')
                        <> (ended.reason IN ('cancelled', 'dependency_failed'))
                        OR ended.state NOT IN ('succeeded', 'failed', 'cancelled', 'dead')
                        THEN 'state_has_its_reason'
                    WHEN num_nulls(ended.token, ended.nonce)
                        NOT IN (0, CASE WHEN ended.state = 'cancelled' THEN 2 ELSE 0 END)
                        THEN 'token_whole'
                    WHEN ended.worker_id IS NOT NULL AND (
                            ended.state <> 'succeeded' OR ended.finished_at < ended.claimed_at
                            OR num_nulls(
                                ended.lane_id, ended.ready_at, ended.claimed_at, ended.devices,
                                ended.gpu_seconds
                            ) > 0
                        )
                        THEN 'attempt_whole'
                END AS wrong
        ) AS told
        WHERE told.wrong IS NOT NULL
    ) AS found;
    IF wrong IS NOT NULL THEN
        RAISE EXCEPTION 'an impossible outcome: %', wrong
            USING ERRCODE = 'check_violation', CONSTRAINT = wrong, TABLE = 'outcome';
    END IF;
    IF lines IS NOT NULL THEN
        DELETE FROM turn USING ended WHERE turn.job_id = ended.job_id;
    END IF;
    IF num_nonnulls(waiting, lines) > 0 THEN
        PERFORM forge_release(coalesce(waiting[1 : 10000], '{}'), coalesce(lines, '{}'));
    END IF;
    RETURN NULL;
END $$;
