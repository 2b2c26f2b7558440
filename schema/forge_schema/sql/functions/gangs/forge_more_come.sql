-- Whether a gang with a range of machines should wait for more than these: for up to ten seconds after
-- it became ready, workers lie down that are drafted for it or were in its last run.
CREATE OR REPLACE FUNCTION forge_more_come(
    wanted integer, its_lane integer, its_nice smallint, gang bigint, there bigint[]
) RETURNS boolean
LANGUAGE sql STABLE AS $$
    SELECT EXISTS (
        SELECT
        FROM ready
        JOIN shape ON shape.id = wanted
        JOIN worker ON worker.id <> ALL(there) AND forge_serves(shape, worker)
            AND forge_joins(worker)
        WHERE ready.lane_id = its_lane AND ready.nice = its_nice AND ready.job_id = gang
            AND ready.ready_at > forge_now() - interval '10 seconds'
            AND (
                EXISTS (
                    SELECT FROM draft
                    WHERE draft.worker_id = worker.id AND draft.job_id = gang
                )
                OR EXISTS (
                    SELECT FROM attempt_row AS member
                    WHERE member.job_id = gang AND member.attempt = ready.attempt
                        AND member.worker_id = worker.id AND member.reason <> 'worker_lost'
                )
            )
    )
$$;
