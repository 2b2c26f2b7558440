-- The random id of this queue, which tells its jobs from another queue's on the same machine.
SELECT queue_id FROM identity
