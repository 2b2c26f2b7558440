-- Locks the lanes of a queue or of an owner, so that what is being set on the other is waited for.
SELECT id FROM lane
WHERE queue = %(queue)s::text OR owner = %(owner)s::text
ORDER BY id
FOR NO KEY UPDATE
