-- Asks a worker to connect to the server at which a caller waits for a shell.
SELECT pg_notify('forge', concat_ws(':', 'shell', %(worker_id)s::bigint, %(shell)s::text))
