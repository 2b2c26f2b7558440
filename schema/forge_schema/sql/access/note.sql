-- Writes down what somebody tried and was not let do, or did outside the database.
INSERT INTO event (at, actor, action, job_id, worker_id, detail)
VALUES (forge_now(), %(actor)s, %(action)s, %(job_id)s, %(worker_id)s, %(detail)s)
RETURNING id
