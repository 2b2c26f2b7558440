-- Whether the program may have been killed while it wrote what a checkpoint of rank 0 has: the
-- attempt that stored it was killed, on any machine, or lost. If it was stopped, its program handled
-- that only if it exited with 0; its last checkpoint would say so too, but there may be none that was
-- stored after the stop. A step that the program committed is whole, and so is what somebody chose.
CREATE OR REPLACE FUNCTION forge_may_be_torn(kept checkpoint) RETURNS boolean
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT kept.step IS NULL AND NOT kept.trusted AND (
        EXISTS (
            SELECT FROM checkpoint AS one
            WHERE one.job_id = kept.job_id AND one.attempt = kept.attempt AND one.killed
        )
        OR EXISTS (
            SELECT FROM attempt AS ended
            WHERE ended.job_id = kept.job_id AND ended.attempt = kept.attempt
                AND (
                    ended.reason IN ('worker_lost', 'oom', 'disk_full')
                    OR CASE ended.reason
                        WHEN 'exit_code' THEN forge_by_signal(ended.exit_code)
                        ELSE ended.exit_code <> 0
                    END
                )
        )
    )
$$;
