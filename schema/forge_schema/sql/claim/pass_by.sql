-- Notes that a waiting job was passed by for lack of room, unless that was noted before. A job that is
-- being claimed right now is left alone.
UPDATE ready SET passed_at = forge_now()
WHERE lane_id = %(lane_id)s AND nice = %(nice)s AND job_id = (
    SELECT job_id FROM ready
    WHERE lane_id = %(lane_id)s AND nice = %(nice)s AND job_id = %(job_id)s AND passed_at IS NULL
    FOR NO KEY UPDATE SKIP LOCKED
)
