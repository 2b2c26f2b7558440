-- Decides what the next attempt begins with after one that failed. If it failed early, and the
-- checkpoint that it began with may be torn, that one is passed over, and true is returned: the
-- failure is not charged. What the attempt itself has stored never hides the older ones.
-- After five such failures in a row, it is not the checkpoint: all of them count again, the newest
-- first, and failures are charged. If there is no older checkpoint, the attempt after the last
-- one that the job's retries allow begins without any.
-- Locks: checkpoint.
CREATE OR REPLACE FUNCTION forge_step_back(
    of_job bigint, of_attempt smallint, why reason, code integer, ran interval,
    progress double precision, is_last boolean
) RETURNS boolean
LANGUAGE plpgsql VOLATILE AS $$
DECLARE
    begun checkpoint;
    older integer;
    steps integer;
    back boolean;
BEGIN
    SELECT kept.* INTO begun
    FROM beginning JOIN checkpoint AS kept
        ON kept.job_id = beginning.job_id AND kept.attempt = beginning.from_attempt
        AND kept.number = beginning.from_number AND kept.rank = 0
    WHERE beginning.job_id = of_job AND beginning.attempt = of_attempt;
    IF begun.job_id IS NULL OR begun.passed_over IS NOT NULL
        OR NOT (begun.trusted OR forge_may_be_torn(begun))
        OR NOT forge_failed_early(of_job, of_attempt, why, code, ran, progress) THEN
        RETURN false;
    END IF;
    UPDATE checkpoint SET passed_over = of_attempt
    WHERE checkpoint.job_id = of_job AND checkpoint.attempt = of_attempt
        AND checkpoint.rank = 0 AND checkpoint.passed_over IS NULL;
    IF begun.trusted THEN
        RETURN false;
    END IF;
    SELECT
        count(*) FILTER (
            WHERE kept.passed_over IS NULL
                AND (kept.token, kept.number) < (begun.token, begun.number)
        ),
        count(*) FILTER (
            WHERE kept.passed_over > kept.attempt
                AND (kept.token, kept.number) > (begun.token, begun.number)
        )
    INTO older, steps
    FROM forge_complete_checkpoints(of_job) AS kept;
    IF older > 0 AND steps >= 5 THEN
        UPDATE checkpoint SET passed_over = NULL, trusted = true
        WHERE checkpoint.job_id = of_job AND checkpoint.rank = 0
            AND (
                checkpoint.passed_over > checkpoint.attempt
                OR (checkpoint.token, checkpoint.number) = (begun.token, begun.number)
            );
        RETURN false;
    END IF;
    back := older > 0 OR is_last;
    IF back THEN
        UPDATE checkpoint SET passed_over = of_attempt
        WHERE checkpoint.job_id = of_job
            AND (checkpoint.token, checkpoint.number) = (begun.token, begun.number);
        UPDATE beginning SET blamed = true
        WHERE beginning.job_id = of_job AND beginning.attempt = of_attempt;
    END IF;
    RETURN back;
END $$;
