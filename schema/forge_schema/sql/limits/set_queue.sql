-- Sets those of a queue's pause and limits that are `given`; the others stay. `lanes_follow` updates
-- its lanes in the same transaction.
WITH changed AS (
    INSERT INTO queue (
        name, paused, max_jobs, max_gpus, preemption, preempts_after_s, most_preempted
    )
    VALUES (
        %(queue)s, %(paused)s, %(max_jobs)s, %(max_gpus)s, %(preemption)s, %(preempts_after_s)s,
        %(most_preempted)s
    )
    ON CONFLICT (name) DO UPDATE
        SET
            paused = CASE
                WHEN 'paused' = ANY(%(given)s::text[]) THEN excluded.paused ELSE queue.paused
            END,
            max_jobs = CASE
                WHEN 'max_jobs' = ANY(%(given)s::text[]) THEN excluded.max_jobs
                ELSE queue.max_jobs
            END,
            max_gpus = CASE
                WHEN 'max_gpus' = ANY(%(given)s::text[]) THEN excluded.max_gpus
                ELSE queue.max_gpus
            END,
            preemption = CASE
                WHEN 'preemption' = ANY(%(given)s::text[]) THEN excluded.preemption
                ELSE queue.preemption
            END,
            preempts_after_s = CASE
                WHEN 'preempts_after_s' = ANY(%(given)s::text[]) THEN excluded.preempts_after_s
                ELSE queue.preempts_after_s
            END,
            most_preempted = CASE
                WHEN 'most_preempted' = ANY(%(given)s::text[]) THEN excluded.most_preempted
                ELSE queue.most_preempted
            END
    RETURNING name, paused, max_jobs, max_gpus, preemption, preempts_after_s, most_preempted
),
told AS (
    INSERT INTO event (at, actor, action, detail)
    SELECT forge_now(), %(actor)s, 'queue set', to_jsonb(changed) FROM changed
)
SELECT name FROM changed
