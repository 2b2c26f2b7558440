-- Sets those of a queue's settings that are `given`; the others stay. `lanes_follow` updates its lanes
-- in the same transaction.
WITH changed AS (
    INSERT INTO queue (
        name, paused, max_jobs, max_gpus, guaranteed_gpus, preemption, preempts_after_s,
        most_preempted
    )
    VALUES (
        %(queue)s, %(paused)s, %(max_jobs)s, %(max_gpus)s, %(guaranteed_gpus)s, %(preemption)s,
        %(preempts_after_s)s, %(most_preempted)s
    )
    ON CONFLICT (name) DO UPDATE
        SET (
            paused, max_jobs, max_gpus, guaranteed_gpus, preemption, preempts_after_s, most_preempted
        ) = (
            SELECT
                paused, max_jobs, max_gpus, guaranteed_gpus, preemption, preempts_after_s,
                most_preempted
            FROM jsonb_populate_record(queue, %(given)s)
        )
    RETURNING
        name, paused, max_jobs, max_gpus, guaranteed_gpus, preemption, preempts_after_s,
        most_preempted
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'queue set', to_jsonb(changed) FROM changed
)
SELECT name FROM changed
