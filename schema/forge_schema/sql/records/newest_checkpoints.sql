-- What a lease's holder must know of the checkpoints of its run: the number and the step of rank 0's
-- newest one, and its own newest one. Each is null if there is none. `packs` tells whether every
-- worker that was there within a day can restore packs of small files.
SELECT
    master.number AS master_number, master.step AS master_step,
    own.number, own.key, own.follows, own.step,
    NOT EXISTS (
        SELECT FROM worker
        WHERE version = %(without_packs)s AND last_seen_at > forge_now() - interval '1 day'
    ) AS packs
FROM lease AS held
LEFT JOIN LATERAL (
    SELECT checkpoint.number, checkpoint.step
    FROM lease
    JOIN checkpoint ON checkpoint.job_id = lease.job_id AND checkpoint.token = lease.token
    WHERE lease.job_id = held.job_id AND lease.attempt = held.attempt AND lease.rank = 0
    ORDER BY checkpoint.number DESC
    LIMIT 1
) AS master ON true
LEFT JOIN LATERAL (
    SELECT number, key, follows, step
    FROM checkpoint
    WHERE checkpoint.job_id = held.job_id AND checkpoint.token = held.token
    ORDER BY number DESC
    LIMIT 1
) AS own ON true
WHERE held.job_id = %(job_id)s AND held.token = %(token)s AND held.nonce = %(nonce)s
    AND held.over IS NULL
