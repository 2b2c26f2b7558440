-- The random id of this queue, by which its jobs are told from those of another on one machine.
SELECT queue_id FROM identity
