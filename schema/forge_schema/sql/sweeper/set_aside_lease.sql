-- Sets a lease aside that cannot be ended, for example because its job has already ended, as may
-- happen after a restore; with it the leases of all members of its run.
WITH gone AS (
    DELETE FROM lease USING lease AS of_run
    WHERE of_run.job_id = %(job_id)s AND of_run.token = %(token)s AND of_run.nonce = %(nonce)s
        AND lease.job_id = of_run.job_id AND lease.attempt = of_run.attempt
    RETURNING lease.*
),
returned AS (
    UPDATE slot SET job_id = NULL FROM gone WHERE slot.job_id = gone.job_id
),
kept AS (
    INSERT INTO set_aside (at, place, job_id, error, content)
    SELECT forge_now(), 'lease', job_id, %(error)s, to_jsonb(gone) FROM gone
),
told AS (
    INSERT INTO event (at, actor, action, job_id, worker_id, token, detail)
    SELECT
        forge_now(), %(actor)s, 'set aside', job_id, worker_id, token,
        jsonb_build_object('from', 'lease', 'error', %(error)s::text)
    FROM gone
)
SELECT DISTINCT job_id FROM gone
