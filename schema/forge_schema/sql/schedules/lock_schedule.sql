-- Locks a schedule until the transaction ends.
SELECT id FROM schedule WHERE id = %(schedule_id)s FOR NO KEY UPDATE
