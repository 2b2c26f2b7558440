-- A new worker's id, needed before its row because the token contains it.
SELECT nextval(pg_get_serial_sequence('worker', 'id')) AS id
