-- Returns the given lanes in which one more job stays within the queue's and the owner's limits, at
-- this moment.
SELECT lane.id
FROM lane
WHERE lane.id = ANY(%(lanes)s::integer[]) AND (NOT lane.limited OR forge_room(lane.id, 1) > 0)
