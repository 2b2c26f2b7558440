-- Drafts the workers that a gang's turn still lacks, all of them or none; returns how many.
CREATE OR REPLACE FUNCTION forge_fill(gang bigint) RETURNS bigint
LANGUAGE sql VOLATILE AS $$
    WITH turn AS MATERIALIZED (
        SELECT
            forming.*, shape.id AS shape_id,
            shape.nodes - (
                SELECT count(*) FROM draft WHERE draft.job_id = forming.job_id
            )::integer AS missing
        FROM forming
        JOIN lane ON lane.id = forming.lane_id
        JOIN shape ON shape.id = lane.shape_id
        WHERE forming.job_id = gang AND forming.rests_until IS NULL
    ),
    made AS (
        INSERT INTO draft (worker_id, job_id, lane_id, nice, until)
        SELECT one.id, turn.job_id, turn.lane_id, turn.nice, turn.deadline
        FROM turn
        CROSS JOIN unnest(
            forge_draftable(turn.shape_id, turn.job_id, turn.missing)
        ) AS one (id)
        WHERE turn.missing > 0
        ORDER BY one.id
        RETURNING worker_id
    )
    SELECT count(*) FROM made
$$;
