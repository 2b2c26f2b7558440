-- Drops the monthly partitions of some tables that ended a number of months ago.
SELECT forge_drop_partitions(
    %(tables)s::text[], forge_now() - make_interval(months => %(months)s)
) AS dropped
