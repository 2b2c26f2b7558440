-- Locks the lanes of a queue or of an owner, and so waits for changes to the other side.
SELECT id FROM lane
WHERE queue = %(queue)s::text OR owner = %(owner)s::text
ORDER BY id
FOR NO KEY UPDATE
