-- The key of every object that the queue names.
SELECT key FROM log_chunk
UNION ALL
SELECT key FROM artifact
UNION ALL
SELECT key FROM checkpoint
