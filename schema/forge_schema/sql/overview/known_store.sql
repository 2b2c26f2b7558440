-- The store that servers of this queue use, and what must be in it: the newest pieces of logs.
SELECT
    store,
    ARRAY(
        SELECT key FROM log_chunk
        ORDER BY job_id DESC, token DESC, rank DESC, number DESC LIMIT 3
    ) AS keys
FROM identity
