-- Repeats the pause of a queue, and of each lane's owner, on the queue's lanes.
UPDATE lane SET paused = queue.paused OR owner_quota.paused
FROM queue, owner_quota
WHERE lane.queue = %(queue)s AND queue.name = lane.queue AND owner_quota.owner = lane.owner
RETURNING lane.id, pg_notify('forge', 'ready')
