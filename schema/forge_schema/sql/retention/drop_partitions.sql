-- Drops the monthly partitions of some tables that ended this long ago. Those with rows of jobs that
-- are still there stay.
SELECT forge_drop_partitions(
    %(tables)s::text[], forge_now() - make_interval(months => %(months)s, days => %(days)s)
) AS dropped
