-- Creates the monthly partitions for this month and the next two that a table lacks; returns 0 if
-- none does.
SELECT forge_make_partitions(forge_now(), 2) AS made
