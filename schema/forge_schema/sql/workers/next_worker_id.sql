-- A worker's id ahead of its row: its token holds it.
SELECT nextval(pg_get_serial_sequence('worker', 'id')) AS id
