-- Records a refused attempt, or an action outside the database, in the audit trail.
INSERT INTO event (at, actor, action, job_id, worker_id, detail)
VALUES (forge_now(), %(actor)s, %(action)s, %(job_id)s, %(worker_id)s, %(detail)s)
RETURNING id
