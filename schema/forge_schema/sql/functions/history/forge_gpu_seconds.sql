-- The GPU-seconds of a lease: as its worker reported them, or if it was lost, the time for which the
-- lease held its GPUs.
CREATE OR REPLACE FUNCTION forge_gpu_seconds(
    reported double precision, devices text [], claimed_at timestamptz, finished_at timestamptz
) RETURNS double precision
LANGUAGE sql IMMUTABLE PARALLEL SAFE AS $$
    SELECT coalesce(
        nullif(reported, 0),
        cardinality(devices) * extract(EPOCH FROM finished_at - claimed_at)::double precision
    )
$$;
