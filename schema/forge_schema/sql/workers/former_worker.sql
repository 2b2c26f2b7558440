-- A worker that was removed, as history knows it.
SELECT id, name FROM former_worker WHERE id = %(worker_id)s
