-- Has running jobs leave for waiting ones of a higher priority, in the queues that allow it.
-- Locks: see `forge_displace`.
SELECT forge_displace(%(actor)s) AS displaced
