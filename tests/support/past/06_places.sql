-- Where the present jobs are. The workers that are there hold the leases in turn.
INSERT INTO ready (lane_id, nice, job_id, ready_at)
SELECT present.lane_id, present.nice, present.id, job.submitted_at
FROM present JOIN job USING (id) WHERE present.place = 'ready'
ORDER BY 1, 2, 3;

INSERT INTO scheduled (job_id, lane_id, nice, run_at)
SELECT present.id, present.lane_id, present.nice, now + n % 97 * interval '5 minutes' + interval '1 hour'
FROM present, scale WHERE present.place = 'scheduled';

WITH here AS (
    SELECT id, row_number() OVER (ORDER BY pg_temp.u(id, 61)) - 1 AS place, count(*) OVER () AS all_of
    FROM worker WHERE status <> 'offline'
),
given AS (
    SELECT
        present.*, able.worker_id, able.devices,
        row_number() OVER (PARTITION BY present.id ORDER BY pg_temp.u(able.shape_id + n, 62)) AS nth,
        able.shape_id
    FROM present
    JOIN here ON here.place = present.n % here.all_of
    JOIN able ON able.worker_id = here.id
    WHERE present.place = 'lease'
),
moved AS (
    -- A job that this worker can serve.
    UPDATE job SET lane_id = lane.id, owner = lane.owner, nice = given.nice
    FROM given, lane
    WHERE job.id = given.id AND given.nth = 1
        AND lane.id = (
            SELECT min(l.id) FROM lane AS l
            WHERE l.shape_id = given.shape_id AND l.owner <> 'quiet'
        )
    RETURNING job.id, job.lane_id, job.submitted_at
)
INSERT INTO lease (
    job_id, rank, worker_id, lane_id, nice, attempt, failures, losses, preemptions, ready_at,
    claimed_at, started_at, expires_at, phase, progress, metrics, samples, devices
)
SELECT
    given.id, 0, given.worker_id, moved.lane_id, given.nice, 1, 0, 0, 0, moved.submitted_at,
    moved.submitted_at + (now - moved.submitted_at) / 3,
    CASE WHEN n % 10 <> 0 THEN moved.submitted_at + (now - moved.submitted_at) / 2 END,
    now + make_interval(secs => 60 + n % 60),
    CASE WHEN n % 10 <> 0 THEN 'running' ELSE 'preparing' END::phase,
    CASE WHEN n % 10 <> 0 THEN pg_temp.u(n, 63) END, 0, 0, given.devices
FROM given JOIN moved USING (id), scale
WHERE given.nth = 1;
UPDATE worker SET status = 'busy'
WHERE status = 'idle' AND id IN (SELECT worker_id FROM lease);
