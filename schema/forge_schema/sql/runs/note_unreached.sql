-- Notes of a run that is about to be settled which workers the others could not reach, if that ended it,
-- or else, if all could reach each other, that nothing is wrong with them.
-- A worker that was to blame twice in a row, not only with the same one other, takes no part in gangs
-- for two minutes, and for twice as long each further time, up to about an hour.
-- One whose row is just being renewed is left out: the renewal may wait for a lease of this run.
-- Locks: worker, skipping locked. The caller holds the run's lock.
WITH found AS MATERIALIZED (
    SELECT member.worker_id, unreached.peer, member.nodes
    FROM lease AS member
    LEFT JOIN forge_unreached(%(job_id)s) AS unreached
        ON %(unreached)s AND unreached.rank = member.rank
    WHERE member.job_id = %(job_id)s AND member.attempt = %(attempt)s
        AND (
            unreached.peer IS NOT NULL
            OR EXISTS (
                SELECT FROM lease AS master
                WHERE master.job_id = %(job_id)s AND master.rank = 0 AND master.step = 2
            )
        )
),
noted AS MATERIALIZED (
    SELECT worker.id, found.nodes, found.peer, recent.peers
    FROM found
    JOIN worker ON worker.id = found.worker_id
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN found.peer IS NOT NULL THEN array_append(
                (worker.unreached_by)[greatest(cardinality(worker.unreached_by) - 5, 1):],
                found.peer
            )
        END AS peers
    ) AS recent
    WHERE found.peer IS NOT NULL OR worker.unreached_by IS NOT NULL
    FOR NO KEY UPDATE OF worker SKIP LOCKED
)
UPDATE worker SET
    unreached_by = noted.peers,
    gangs_after = CASE
        WHEN cardinality(noted.peers) > 1
            AND (noted.nodes > 2 OR noted.peer <> ANY(noted.peers))
            THEN forge_now() + interval '1 minute' * power(2, cardinality(noted.peers) - 1)
    END
FROM noted
WHERE worker.id = noted.id
