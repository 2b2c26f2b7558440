-- The workers that a running gang could have besides its members, the best first, up to so many: those
-- that have found nothing for as long as `waited`, that no waiting job could have, and that its runs
-- could reach. They are like the first member, as `forge_alike` says.
CREATE OR REPLACE FUNCTION forge_spare(
    wanted integer, gang bigint, waited interval, most integer
) RETURNS bigint[]
LANGUAGE sql VOLATILE AS $$
    WITH others AS MATERIALIZED (
        SELECT DISTINCT lane.shape_id
        FROM forge_waiting_lanes() AS waiting (lane_id)
        JOIN lane ON lane.id = waiting.lane_id AND NOT lane.paused
        WHERE NOT lane.limited OR forge_room(lane.id, 1) > 0
    ),
    able AS MATERIALIZED (
        SELECT
            worker.id,
            max(CASE WHEN shape.gpus > 0 THEN idle.gpu_speed ELSE idle.cpu_speed END) AS speed
        FROM shape
        JOIN job ON job.id = gang
        JOIN idle ON idle.nonce IS NOT NULL AND idle.since <= forge_now() - waited
        JOIN worker ON worker.id = idle.worker_id AND worker.boot_id = idle.boot_id
        CROSS JOIN LATERAL forge_lent(shape, worker) AS lent
        WHERE shape.id = wanted
            AND forge_joins(worker)
            AND forge_idle_fits(
                shape, lent.cpus, lent.memory_mb, idle.cpus, idle.memory_mb, idle.disk_mb,
                idle.gpus, idle.gpu_model, idle.vram_mb
            )
            AND forge_serves(shape, worker)
            AND NOT EXISTS (SELECT FROM draft WHERE draft.worker_id = worker.id)
            AND NOT EXISTS (
                SELECT FROM lease WHERE lease.job_id = gang AND lease.worker_id = worker.id
            )
            AND NOT EXISTS (
                SELECT FROM attempt_row AS member
                WHERE member.job_id = gang AND member.worker_id = worker.id
                    AND member.reason = 'preflight_failed'
            )
            AND forge_alike(shape, worker, job.spec) = (
                SELECT forge_alike(shape, first, job.spec)
                FROM lease JOIN worker AS first ON first.id = lease.worker_id
                WHERE lease.job_id = gang AND lease.rank = 0
            )
            AND NOT EXISTS (
                SELECT
                FROM others JOIN shape AS other ON other.id = others.shape_id
                WHERE forge_serves(other, worker)
            )
        GROUP BY worker.id
    )
    SELECT ARRAY(SELECT id FROM able ORDER BY speed DESC, id LIMIT most)
$$;
