-- Stores the end of one member of a run in its lease, which stays until all members are over. Unless
-- it succeeded, the others are asked to stop; they are as well if the launcher ends the run with the
-- master's success. The end of a run that grows says so. `whole` tells whether no other member is
-- left. A repeated end returns the first one.
-- The caller holds the run's lock.
-- Locks: lease by rank.
WITH own AS MATERIALIZED (
    SELECT
        lease.*, job.spec ->> 'launcher' AS launcher,
        CASE
            WHEN forming.grows IS NOT NULL AND %(reason)s::text = 'run_ended'
                THEN format('to continue with %%s machines instead of %%s', forming.grows, lease.nodes)
        END AS grows
    FROM lease
    JOIN job ON job.id = lease.job_id
    LEFT JOIN forming ON forming.job_id = lease.job_id AND forming.since > lease.claimed_at
    WHERE lease.job_id = %(job_id)s AND lease.token = %(token)s AND lease.nonce = %(nonce)s
        AND lease.nodes > 1
        AND (NOT %(expired_only)s OR lease.expires_at < forge_now())
),
over AS (
    UPDATE lease
    SET over = jsonb_build_object(
            'at', forge_now(), 'reason', %(reason)s::text, 'exit_code', %(exit_code)s::integer,
            'detail', coalesce(own.grows, %(detail)s::text), 'usage', %(usage)s::jsonb,
            'level', CASE own.asked::text
                WHEN 'ended' THEN %(asked_level)s ELSE %(level)s
            END::integer
        ),
        -- Never, in a form with which every reader can calculate.
        expires_at = forge_now() + interval '100 years'
    FROM own
    WHERE lease.job_id = own.job_id AND lease.rank = own.rank AND lease.over IS NULL
        -- It may have been renewed just now.
        AND (NOT %(expired_only)s OR lease.expires_at < forge_now())
    RETURNING lease.job_id
),
others AS MATERIALIZED (
    SELECT lease.job_id, lease.rank, lease.worker_id, lease.asked
    FROM own JOIN lease
        ON lease.job_id = own.job_id AND lease.attempt = own.attempt AND lease.rank <> own.rank
    WHERE lease.over IS NULL
    ORDER BY lease.rank
    FOR NO KEY UPDATE OF lease
),
asked AS (
    UPDATE lease SET asked = 'ended'
    FROM others, over, own
    WHERE lease.job_id = others.job_id AND lease.rank = others.rank AND others.asked IS NULL
        AND (
            %(reason)s::text <> 'succeeded'
            OR own.rank = 0 AND own.launcher = 'ray'
        )
    RETURNING lease.worker_id
),
notified AS MATERIALIZED (
    SELECT count(pg_notify('forge', 'asked:' || worker_id)) AS workers FROM asked
)
SELECT
    own.job_id, own.token, own.nonce,
    coalesce(own.over ->> 'reason', %(reason)s::text) AS reason,
    NOT EXISTS (SELECT FROM others) AS whole,
    (SELECT workers FROM notified) AS asked
FROM own
WHERE own.over IS NOT NULL OR EXISTS (SELECT FROM over)
