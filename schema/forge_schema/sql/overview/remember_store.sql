-- Remembers the store of a server that starts, if the queue's objects are `here`, or nowhere yet.
UPDATE identity SET store = %(store)s
WHERE store IS DISTINCT FROM %(store)s
    AND (%(here)s OR NOT EXISTS (SELECT FROM log_chunk))
