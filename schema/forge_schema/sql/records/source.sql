-- Whether a job can start from a checkpoint, and if not, why: another owner's job, or no such one.
SELECT
    EXISTS (
        SELECT FROM job
        WHERE owner = %(owner)s AND idempotency_key = %(key)s::text
    ) AS submitted,
    EXISTS (
        SELECT FROM job WHERE id = %(job_id)s AND (%(any_owner)s OR owner = %(owner)s)
    ) AS visible,
    EXISTS (SELECT FROM forge_complete_checkpoints(%(job_id)s)) AS some,
    EXISTS (
        SELECT FROM forge_complete_checkpoints(%(job_id)s)
        WHERE (%(attempt)s::smallint IS NULL OR attempt = %(attempt)s)
            AND (%(number)s::integer IS NULL OR number = %(number)s)
    ) AS found
