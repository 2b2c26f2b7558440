-- The database's time.
SELECT forge_now() AS now
