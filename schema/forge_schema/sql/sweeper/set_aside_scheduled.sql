-- Sets a due row aside that cannot be made ready, for example because its job is already ready, as
-- may happen after a restore.
WITH gone AS (
    DELETE FROM scheduled WHERE job_id = %(job_id)s AND run_at <= forge_now() RETURNING *
),
kept AS (
    INSERT INTO set_aside (at, place, job_id, error, content)
    SELECT forge_now(), 'scheduled', job_id, %(error)s, to_jsonb(gone) FROM gone
),
told AS (
    INSERT INTO event (at, actor, action, job_id, detail)
    SELECT
        forge_now(), %(actor)s, 'set aside', job_id,
        jsonb_build_object('from', 'scheduled', 'error', %(error)s::text)
    FROM gone
)
SELECT job_id FROM gone
