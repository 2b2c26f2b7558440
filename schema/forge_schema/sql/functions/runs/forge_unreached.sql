-- The members of a run that others could not reach in the check of the network, and of each the worker
-- of one that could not. Members connect with the master only: if all of several fail, it is to
-- blame, else those that fail. Of two, whoever was not reached is.
-- What they found is in their leases, as long as the run has these.
CREATE OR REPLACE FUNCTION forge_unreached(run bigint)
RETURNS TABLE (rank smallint, worker_id bigint, peer bigint)
LANGUAGE sql STABLE AS $$
    WITH broken AS MATERIALIZED (
        SELECT told.nodes, told.rank AS by_rank, other.rank
        FROM lease AS told
        CROSS JOIN LATERAL jsonb_array_elements(
            CASE jsonb_typeof(told.member -> 'unreached')
                WHEN 'array' THEN told.member -> 'unreached' ELSE '[]'
            END
        ) AS one (rank)
        JOIN lease AS other
            ON other.job_id = run AND to_jsonb(other.rank) = one.rank
            AND least(told.rank, other.rank) = 0 AND told.rank <> other.rank
        WHERE told.job_id = run
    ),
    -- By the member at the other end of the connection with the master.
    links AS (
        SELECT greatest(by_rank, rank) AS rank, max(nodes) AS nodes FROM broken GROUP BY 1
    ),
    blamed AS (
        SELECT broken.rank, broken.by_rank FROM broken WHERE broken.nodes = 2
        UNION ALL
        SELECT
            CASE WHEN of_all.master THEN 0 ELSE links.rank END,
            CASE WHEN of_all.master THEN links.rank ELSE 0 END
        FROM links
        CROSS JOIN (
            SELECT count(*) = max(links.nodes) - 1 AS master FROM links
        ) AS of_all
        WHERE links.nodes > 2
    )
    SELECT blamed.rank::smallint, own.worker_id, min(other.worker_id)
    FROM blamed
    JOIN lease AS own ON own.job_id = run AND own.rank = blamed.rank
    JOIN lease AS other ON other.job_id = run AND other.rank = blamed.by_rank
    GROUP BY blamed.rank, own.worker_id
$$;
