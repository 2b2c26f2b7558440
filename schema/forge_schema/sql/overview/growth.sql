-- How much the queue holds, and what the last days added: jobs submitted and removed, and the bytes
-- of the objects of those submitted. `days` is how far back the jobs go. `folder` is the server's,
-- null if this role may not know it.
WITH recent AS MATERIALIZED (
    SELECT
        count(*) AS jobs, min(id) AS first,
        extract(EPOCH FROM %(now)s::timestamptz - min(submitted_at)) / 86400 AS days
    FROM job
    WHERE submitted_at >= %(since)s::timestamptz
),
counted AS (SELECT greatest(sum(reltuples), 0) AS jobs FROM pg_class WHERE oid = 'job'::regclass)
SELECT
    (
        SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class
        WHERE relkind = 'r'
            AND relnamespace = (SELECT relnamespace FROM pg_class WHERE oid = 'job'::regclass)
    ) AS bytes,
    -- The estimate of the last VACUUM, where counting would take long.
    CASE
        WHEN counted.jobs >= 100000 THEN counted.jobs::bigint
        ELSE (SELECT count(*) FROM job)
    END AS jobs,
    coalesce(recent.days, 0)::float8 AS days,
    recent.jobs AS submitted,
    (
        SELECT coalesce(sum((detail ->> 'jobs')::integer), 0)::bigint FROM event
        WHERE at >= %(since)s::timestamptz AND action = 'jobs removed'
    ) AS removed,
    (
        (SELECT coalesce(sum(bytes), 0) FROM artifact WHERE job_id >= recent.first)
        + (SELECT coalesce(sum(bytes), 0) FROM checkpoint WHERE job_id >= recent.first)
        + (SELECT coalesce(sum(bytes), 0) FROM log_chunk WHERE job_id >= recent.first)
    )::bigint AS stored,
    (SELECT setting FROM pg_settings WHERE name = 'data_directory') AS folder
FROM recent, counted
