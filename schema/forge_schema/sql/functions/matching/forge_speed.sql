-- How fast a worker is at a job with or without GPUs, from 0 to less than 1: 0 if that was not
-- measured, and more with each GFLOPS of a GPU, or of a CPU while all others work too. Results of
-- different methods are not compared: all of one method go before all of another.
CREATE OR REPLACE FUNCTION forge_speed(speed jsonb, on_gpus boolean) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(max((made_by.place + rate.gflops / (rate.gflops + 10000)) / 4), 0)
    FROM (
        SELECT CASE speed ->> 'method'
            WHEN 'torch' THEN 3
            WHEN 'numpy' THEN 2
            WHEN 'python' THEN 1
        END AS place
    ) AS made_by
    CROSS JOIN LATERAL (
        SELECT max(each.value::float8) AS gflops
        FROM jsonb_each_text(coalesce(speed -> 'cuda', speed -> 'rocm', speed -> 'mps')) AS each
        WHERE on_gpus
        UNION ALL
        SELECT coalesce(speed -> 'cpu' ->> 'fp32', speed -> 'cpu' ->> 'fp64')::float8
            / greatest((speed ->> 'cpus')::float8, 1)
        WHERE NOT on_gpus
    ) AS rate
$$;
