-- Queues, owners and lanes, each lane of one shape; the shapes are there.
INSERT INTO queue (name, paused, max_jobs) VALUES
    ('default', false, NULL), ('research', false, 4000), ('nightly', true, NULL),
    ('production', false, NULL);
INSERT INTO owner_quota (owner, weight, max_gpus)
SELECT owner, 1 + n % 3, CASE WHEN n % 5 = 0 THEN 256 END
FROM unnest(ARRAY[
    'ann', 'bob', 'chitra', 'dev', 'elena', 'farid', 'gita', 'hugo', 'ines', 'jun', 'kavya', 'lars',
    'mina', 'nikhil', 'olga', 'priya', 'rosa', 'sven', 'tara', 'quiet'
]) WITH ORDINALITY AS o (owner, n);
INSERT INTO lane (id, shape_id, queue, owner, paused, limited)
SELECT
    n, shape.id, queue.name, owners.owner, queue.paused,
    num_nonnulls(queue.max_jobs, owners.max_gpus) > 0
FROM generate_series(1, 200) AS n
JOIN (SELECT id, row_number() OVER (ORDER BY id) - 1 AS place FROM shape) AS shape
    ON shape.place = n * 7 % (SELECT count(*) FROM shape)
JOIN (
    SELECT owner, max_gpus, row_number() OVER (ORDER BY owner = 'quiet', owner) AS place
    FROM owner_quota
) AS owners ON owners.place = 1 + (n - 1) % 20
JOIN (
    SELECT name, paused, max_jobs, row_number() OVER (ORDER BY name) - 1 AS place FROM queue
) AS queue ON queue.place = (n - 1) / 20 % 4;
SELECT setval(pg_get_serial_sequence('lane', 'id'), 200);
INSERT INTO template (owner, name, spec, updated_at)
SELECT owner, 'template-' || n, spec, now
FROM owner_quota, generate_series(1, 10) AS n, scale, (SELECT spec FROM specs LIMIT 1) AS s;
