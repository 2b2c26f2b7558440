-- The word that people read for the state of a job.
CREATE OR REPLACE FUNCTION forge_state_word(state) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE AS $$
    SELECT CASE $1
        WHEN 'scheduled' THEN 'queued' WHEN 'ready' THEN 'queued' WHEN 'dead' THEN 'failed'
        ELSE $1::text
    END
$$;
