-- Deletes surplus checkpoints of a job, on behalf of its lease's holder.
-- Of the complete ones, the newest stay; of the others, the oldest one of each fourfold age, and
-- those that other jobs start from. Those that are passed over come after all others. As long as the
-- attempt may turn out to have begun with a torn one, the newest two before it stay too. What other ranks have stored of these stays too. What is not
-- complete stays while it may become so: in this run, after the newest complete one, `pending` of
-- each rank. Returns all rows, each with whether it is gone; nothing if the lease is lost.
-- Locks: checkpoint, those of rank 0 first.
WITH held AS MATERIALIZED (
    SELECT
        job_id, attempt,
        coalesce(started_at, claimed_at) > forge_now() - interval '10 minutes'
            AND EXISTS (
                SELECT FROM beginning JOIN checkpoint AS begun
                    ON begun.job_id = beginning.job_id AND begun.rank = 0
                    AND begun.attempt = beginning.from_attempt
                    AND begun.number = beginning.from_number
                WHERE beginning.job_id = lease.job_id AND beginning.attempt = lease.attempt
                    AND forge_may_be_torn(begun)
            ) AS unsure
    FROM lease
    WHERE job_id = %(job_id)s AND token = %(token)s AND nonce = %(nonce)s AND over IS NULL
    FOR KEY SHARE
),
complete AS MATERIALIZED (
    SELECT
        kept.token, kept.number, kept.attempt,
        row_number() OVER (
            ORDER BY kept.passed_over IS NOT NULL, kept.token DESC, kept.number DESC
        ) AS place,
        held.unsure AND kept.attempt < held.attempt AND row_number() OVER (
            PARTITION BY kept.attempt < held.attempt
            ORDER BY kept.passed_over IS NOT NULL, kept.token DESC, kept.number DESC
        ) <= 2 AS before,
        floor(log(4, greatest(extract(epoch FROM forge_now() - kept.created_at), 1))) AS age
    FROM held CROSS JOIN LATERAL forge_complete_checkpoints(held.job_id) AS kept
),
half AS (
    SELECT
        token, number, attempt,
        row_number() OVER (ORDER BY token DESC, number DESC) AS place
    FROM checkpoint JOIN held USING (job_id, attempt)
    WHERE rank = 0 AND (token, number) NOT IN (SELECT token, number FROM complete)
),
spare AS (
    SELECT token, number
    FROM (
        SELECT *, row_number() OVER (PARTITION BY age ORDER BY token, number) AS elder
        FROM complete WHERE place > %(keep)s
    ) AS older
    -- Until then, a rank may need what it restored for its own first checkpoint.
    WHERE elder > 1 AND NOT before AND EXISTS (SELECT FROM complete JOIN held USING (attempt))
    UNION ALL
    SELECT half.token, half.number
    FROM half LEFT JOIN complete ON complete.place = 1
    WHERE half.place > %(pending)s OR (half.token, half.number) < (complete.token, complete.number)
    UNION ALL
    SELECT before.token, before.number
    FROM checkpoint AS before JOIN held USING (job_id)
    WHERE before.rank = 0 AND before.attempt < held.attempt
        AND (before.token, before.number) NOT IN (SELECT token, number FROM complete)
),
-- A submit that names a checkpoint locks it, and this statement waits for that.
locked AS MATERIALIZED (
    SELECT checkpoint.job_id, checkpoint.token, checkpoint.number
    FROM held JOIN checkpoint USING (job_id) JOIN spare USING (token, number)
    ORDER BY checkpoint.token, checkpoint.number
    FOR UPDATE OF checkpoint
),
gone AS (
    DELETE FROM checkpoint USING locked
    WHERE checkpoint.job_id = locked.job_id AND checkpoint.token = locked.token
        AND checkpoint.number = locked.number
        AND NOT forge_is_source(locked.job_id, locked.token, locked.number)
    RETURNING checkpoint.token, checkpoint.number
),
needed AS MATERIALIZED (
    SELECT part.token, part.number, complete.place
    FROM held
    JOIN checkpoint AS master USING (job_id)
    LEFT JOIN complete ON complete.token = master.token AND complete.number = master.number
    CROSS JOIN LATERAL forge_companions(master) AS part
    WHERE master.rank = 0 AND master.nodes > 1
        AND (master.token, master.number) NOT IN (SELECT token, number FROM gone)
),
parts AS (
    SELECT
        part.token, part.number, part.attempt < held.attempt AS before,
        row_number() OVER (PARTITION BY part.token ORDER BY part.number DESC) AS place
    FROM checkpoint AS part JOIN held USING (job_id)
    WHERE part.rank > 0 AND (part.token, part.number) NOT IN (SELECT token, number FROM needed)
),
locked_parts AS MATERIALIZED (
    SELECT checkpoint.job_id, checkpoint.token, checkpoint.number
    FROM held
    JOIN checkpoint USING (job_id)
    JOIN parts USING (token, number)
    LEFT JOIN needed ON needed.place = 1 AND needed.token = parts.token
    WHERE parts.before OR parts.place > %(pending)s OR parts.number < needed.number
    ORDER BY checkpoint.token, checkpoint.number
    FOR UPDATE OF checkpoint
),
gone_parts AS (
    DELETE FROM checkpoint USING locked_parts
    WHERE checkpoint.job_id = locked_parts.job_id AND checkpoint.token = locked_parts.token
        AND checkpoint.number = locked_parts.number
    RETURNING checkpoint.token, checkpoint.number
)
SELECT
    checkpoint.token, checkpoint.number, checkpoint.attempt, checkpoint.key,
    (checkpoint.token, checkpoint.number) IN (
        SELECT token, number FROM gone UNION ALL SELECT token, number FROM gone_parts
    ) AS gone
FROM held
JOIN checkpoint USING (job_id)
ORDER BY checkpoint.attempt DESC, checkpoint.token DESC, checkpoint.number DESC
