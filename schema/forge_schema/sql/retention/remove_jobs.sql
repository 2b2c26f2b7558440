-- Removes old jobs among the next ones after an id. `reached` is the last one it looked at; null if
-- none is left that is old enough.
SELECT reached, removed
FROM forge_remove_jobs(
    %(after)s, make_interval(days => %(days)s), %(count)s, %(actor)s
)
