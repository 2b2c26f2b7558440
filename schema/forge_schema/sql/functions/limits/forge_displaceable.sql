-- The running jobs that may leave for one of a lane and `nice`, with the seconds of work that all of
-- their machines lose: since their last checkpoint, or since they started. They are those
-- of a lower priority in its queue, if that `outranks` them; and if the job's GPUs are guaranteed
-- (`is_due`), those for whom that guarantee is not, which then is `guaranteed_to`.
-- None is taken from others' guarantees: of the jobs of those, only what they run beyond them, all
-- together or `by_worker`; of a guarantee that is this job's too, no more than it gives back.
CREATE OR REPLACE FUNCTION forge_displaceable(
    its_lane integer, its_nice smallint, outranks boolean, is_due boolean, by_worker boolean
)
RETURNS TABLE (job_id bigint, lost_s double precision, guaranteed_to text)
LANGUAGE sql STABLE AS $$
    WITH due AS MATERIALIZED (SELECT * FROM forge_guarantees(its_lane)),
    leaves AS MATERIALIZED (
        SELECT lane.queue, count(DISTINCT lease.job_id) AS jobs
        FROM lease JOIN lane ON lane.id = lease.lane_id
        WHERE lease.asked = 'preempted'
        GROUP BY lane.queue
    ),
    running AS MATERIALIZED (
        SELECT
            lease.job_id, lane.id AS lane_id, array_agg(lease.worker_id) AS workers,
            sum(shape.gpus) AS gpus,
            outranks AND lane.queue = its.queue AND min(lease.nice) > its_nice AS outranked,
            sum(extract(EPOCH FROM forge_now() - greatest(
                coalesce(lease.started_at, forge_now()),
                (SELECT max(created_at) FROM checkpoint WHERE checkpoint.job_id = lease.job_id)
            )))::float8 AS lost_s
        FROM lease
        JOIN lane ON lane.id = lease.lane_id
        JOIN lane AS its ON its.id = its_lane AND (is_due OR its.queue = lane.queue)
        JOIN shape ON shape.id = lane.shape_id
        JOIN queue ON queue.name = lane.queue
        LEFT JOIN leaves ON leaves.queue = lane.queue
        WHERE coalesce(leaves.jobs, 0) < queue.most_preempted
        GROUP BY lease.job_id, lane.id, its.queue
        HAVING bool_and(
            lease.over IS NULL AND lease.asked IS NULL
            AND lease.claimed_at <= forge_now() - make_interval(secs => queue.preempts_after_s)
            AND lease.phase IN ('claimed', 'preparing', 'running')
        )
    ),
    able AS MATERIALIZED (
        SELECT running.*, lender.guaranteed_to
        FROM running
        JOIN lane ON lane.id = running.lane_id
        LEFT JOIN LATERAL (
            SELECT format('%s %s', due.kind, due.name) AS guaranteed_to FROM due
            WHERE is_due AND due.fits AND NOT forge_counts_for(lane, due.kind, due.name)
            ORDER BY due.kind
            LIMIT 1
        ) AS lender ON NOT running.outranked
        WHERE running.outranked OR lender.guaranteed_to IS NOT NULL
    ),
    spare AS MATERIALIZED (
        SELECT
            able.job_id, due.kind, due.name,
            CASE
                WHEN due.is_its THEN greatest(due.runs - due.gpus, 0) + due.wants
                ELSE due.runs - due.gpus
            END AS most
        FROM able
        JOIN lane ON lane.id = able.lane_id
        JOIN due ON forge_counts_for(lane, due.kind, due.name) AND NOT (due.is_its AND able.outranked)
        WHERE able.gpus > 0
    ),
    counted AS (
        SELECT
            able.*, spare.most,
            sum(able.gpus) OVER (
                PARTITION BY CASE WHEN by_worker THEN place.worker_id END, spare.kind, spare.name
                ORDER BY able.lost_s, able.job_id
            ) AS taken
        FROM able
        CROSS JOIN LATERAL unnest(
            CASE WHEN by_worker THEN able.workers ELSE able.workers[:1] END
        ) AS place (worker_id)
        LEFT JOIN spare ON spare.job_id = able.job_id
        WHERE NOT EXISTS (
            SELECT FROM spare WHERE spare.job_id = able.job_id AND spare.most < able.gpus
        )
    )
    SELECT counted.job_id, counted.lost_s, counted.guaranteed_to FROM counted
    GROUP BY counted.job_id, counted.lost_s, counted.guaranteed_to
    HAVING bool_and(counted.most IS NULL OR counted.taken <= counted.most)
$$;
