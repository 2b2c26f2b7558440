-- Judges the workers by what became of jobs on them; see `forge_suspect`.
SELECT forge_suspect(%(actor)s) AS changed
