-- The key of every object that the queue names, in the order in which stores list them.
SELECT key
FROM (
    SELECT key FROM log_chunk
    UNION ALL SELECT key FROM artifact
    UNION ALL SELECT key FROM checkpoint
) AS named
ORDER BY key COLLATE "C"
