-- Writes down what somebody tried and was not let do, or did outside the database.
INSERT INTO event (at, actor, action, worker_id, detail)
VALUES (forge_now(), %(actor)s, %(action)s, %(worker_id)s, %(detail)s)
RETURNING id
