-- Has the machines of a run that loses a member keep room for its next one. The caller holds the run's
-- lock.
-- Locks: see `forge_keep`.
SELECT forge_keep(%(job_id)s, %(turn)s::interval) AS kept
