-- Removes lanes without jobs, and shapes without lanes.
SELECT forge_remove_lanes(%(count)s) AS removed
