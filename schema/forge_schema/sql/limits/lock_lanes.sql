-- Locks the lanes of a queue or of owners, which waits for changes made through the other of the two.
SELECT id FROM lane
WHERE queue = %(queue)s::text OR owner = ANY(%(owners)s::text[])
ORDER BY id
FOR NO KEY UPDATE
