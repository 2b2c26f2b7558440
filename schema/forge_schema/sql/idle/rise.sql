-- Forgets that a worker sleeps: it found jobs by itself.
DELETE FROM idle WHERE worker_id = %(worker_id)s RETURNING worker_id
