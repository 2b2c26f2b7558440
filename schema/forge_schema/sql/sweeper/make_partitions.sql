-- Makes the monthly partitions of this month and the next two that a table lacks; 0 when none does.
SELECT forge_make_partitions(forge_now(), 2) AS made
