-- drop_partitions
-- Drops the months of some tables that have been over for so many months.
SELECT forge_drop_partitions(
    %(tables)s::text[], forge_now() - make_interval(months => %(months)s)
) AS dropped
