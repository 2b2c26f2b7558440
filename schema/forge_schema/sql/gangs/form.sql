-- Forms the gangs for which there are enough idle workers.
-- Locks: see `forge_form`.
SELECT forge_form() AS formed
