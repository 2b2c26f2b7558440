-- The gangs that wait and are not paused, of all lanes or of some, up to `most` of each lane, the first
-- ones by priority and age. `shares` has those of the owners, as `forge_shares` returns them. A gang
-- with a range of machines takes up to `at_most`. `alike` has the wishes that `forge_alike` looks at.
CREATE OR REPLACE FUNCTION forge_waiting_gangs(
    shares jsonb, most integer, lanes integer[] DEFAULT NULL
)
RETURNS TABLE (
    job_id bigint, nice smallint, share double precision, passed_at timestamptz, parts integer[],
    alike jsonb, lane_id integer, limited boolean, shape_id integer, nodes smallint, pool text,
    at_most integer
)
LANGUAGE sql STABLE AS $$
    SELECT
        head.job_id, head.nice, coalesce((shares ->> lane.owner)::float8, 0), head.passed_at,
        head.parts, jsonb_build_array(job.spec -> 'same', job.spec -> 'mixed'),
        lane.id, lane.limited, shape.id, shape.nodes,
        CASE WHEN shape.gpus = 0 THEN 'cpu' ELSE shape.accelerator END,
        coalesce((job.spec ->> 'max_nodes')::integer, shape.nodes)
    FROM shape
    JOIN lane ON lane.shape_id = shape.id AND NOT lane.paused
    CROSS JOIN LATERAL (
        SELECT ready.job_id, ready.nice, ready.passed_at, ready.parts FROM ready
        WHERE ready.lane_id = lane.id
        ORDER BY ready.nice, ready.job_id
        LIMIT most
    ) AS head
    JOIN job ON job.id = head.job_id
    WHERE shape.nodes > 1 AND (lanes IS NULL OR lane.id = ANY(lanes))
$$;
