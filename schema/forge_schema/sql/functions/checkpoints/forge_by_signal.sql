-- Whether an exit code tells that a signal ended the program: as the worker reports it, or a shell.
CREATE OR REPLACE FUNCTION forge_by_signal(exit_code integer) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(exit_code < 0 OR exit_code BETWEEN 129 AND 192, true)
$$;
