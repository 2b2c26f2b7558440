-- Raises the numbers that a restored queue gives out next, above those that it gave out after the
-- backup. The upper half of a lease's token counts the restores, so tokens never repeat: the lower
-- half lasts for four billion leases. A job's id does not repeat either, unless more than 1,000
-- jobs were submitted since the newest that the backup or the store knows. May run twice.
SELECT
    setval(
        'lease_token', ((coalesce(pg_sequence_last_value('lease_token'), 0) >> 32) + 1) << 32
    ) AS token,
    setval(
        ids.job, greatest(coalesce(pg_sequence_last_value(ids.job), 0), %(stored)s::bigint) + 1000
    ) AS job
FROM (SELECT pg_get_serial_sequence('job', 'id')::regclass AS job) AS ids
