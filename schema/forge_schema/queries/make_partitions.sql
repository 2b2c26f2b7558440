-- Makes the monthly partitions of this month and the next two.
SELECT forge_make_partitions(forge_now(), 2) AS made
