-- A removed worker, as known to history.
SELECT id, name FROM former_worker WHERE id = %(worker_id)s
