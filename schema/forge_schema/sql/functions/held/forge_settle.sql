-- Settles the dependencies of held jobs as far as the jobs that they wait for have begun or ended.
-- Each job's dependencies are found by its id alone: by `met` too, a plan may read those of all
-- jobs for each of them.
-- A dependency is settled once: a later retry of the other job changes nothing.
CREATE OR REPLACE FUNCTION forge_settle(waiting bigint[]) RETURNS void
LANGUAGE sql VOLATILE AS $$
    UPDATE dependency SET met = fate.met
    FROM (
        SELECT
            edge.place,
            CASE edge.kind
                WHEN 'after_ok' THEN outcome.state = 'succeeded'
                WHEN 'after_any' THEN outcome.job_id IS NOT NULL OR NULL
                ELSE outcome.job_id IS NOT NULL
                    OR EXISTS (
                        SELECT FROM lease
                        WHERE lease.job_id = edge.needs_id AND lease.started_at IS NOT NULL
                    )
                    OR EXISTS (
                        SELECT FROM attempt
                        WHERE attempt.job_id = edge.needs_id AND attempt.started_at IS NOT NULL
                    )
                    OR NULL
            END AS met
        FROM unnest(waiting) AS held_job (id)
        CROSS JOIN LATERAL (
            SELECT needs_id, kind, met, ctid AS place FROM dependency
            WHERE dependency.job_id = held_job.id
            OFFSET 0
        ) AS edge
        LEFT JOIN outcome ON outcome.job_id = edge.needs_id
        WHERE edge.met IS NULL
    ) AS fate
    WHERE dependency.ctid = fate.place AND fate.met IS NOT NULL
$$;
