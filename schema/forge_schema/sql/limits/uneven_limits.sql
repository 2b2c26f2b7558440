-- The limits whose slots differ from what they should be.
SELECT kind, name FROM forge_uneven_limits()
