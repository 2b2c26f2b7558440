-- Thins out the table `measured` stands for, `metric` or `sample`: of each slice of time older than
-- `age`, the earliest row of each attempt and rank stays, and so do its first and its last row.
-- Continues after the last finished slice and deletes at most `count` rows; does nothing while
-- another call thins out the same. A concurrent call may have deleted rows found here, so a slice
-- is finished when fewer than `count` were found, however many were deleted here.
-- Locks: an advisory one, skipped if it is locked, and not a row of `thinned`: so that its plan is
-- none with which Postgres 18.4 has crashed, as `test_partitions` checks of every statement. Times
-- are compared as rows for the same reason.
WITH slice AS MATERIALIZED (
    SELECT
        done.width_s,
        date_bin(
            make_interval(secs => done.width_s), oldest.at, timestamptz '2000-01-01 00:00+00'
        ) AS since
    FROM thinned AS done
    CROSS JOIN LATERAL (
        SELECT at FROM measured WHERE measured.at >= done.until ORDER BY at LIMIT 1
    ) AS oldest
    WHERE done.subject = 'measured' AND done.width_s = %(width_s)s
),
due AS MATERIALIZED (
    SELECT slice.width_s, slice.since, slice.since + make_interval(secs => slice.width_s) AS until
    FROM slice
    WHERE slice.since + make_interval(secs => slice.width_s) <= forge_now() - %(age)s::interval
        AND pg_try_advisory_xact_lock(hashtextextended('thin measured', slice.width_s))
),
seen AS (
    SELECT
        measured.job_id, measured.token, measured.rank, measured.number, measured.at, due.since,
        row_number() OVER series AS place, lead(measured.number) OVER series AS next
    FROM due
    JOIN measured ON measured.at >= due.since AND measured.at < due.until
    WINDOW series AS (
        PARTITION BY measured.job_id, measured.token, measured.rank ORDER BY measured.number
    )
),
spare AS MATERIALIZED (
    SELECT seen.job_id, seen.token, seen.rank, seen.number, seen.at
    FROM seen
    WHERE seen.place > 1
        AND (
            seen.next IS NOT NULL
            OR EXISTS (
                SELECT FROM measured AS later
                WHERE later.job_id = seen.job_id AND later.token = seen.token
                    AND later.rank = seen.rank AND later.number > seen.number
                    AND later.at >= seen.since
            )
        )
    LIMIT %(count)s
),
gone AS (
    DELETE FROM measured USING spare
    WHERE measured.job_id = spare.job_id AND measured.token = spare.token
        AND measured.rank = spare.rank AND measured.number = spare.number
        AND measured.at = spare.at
    RETURNING measured.number
),
counted AS MATERIALIZED (
    SELECT
        (SELECT count(*)::integer FROM spare) AS spare, (SELECT count(*)::integer FROM gone) AS gone
)
INSERT INTO thinned (subject, width_s, until)
SELECT
    'measured', due.width_s,
    CASE WHEN counted.spare < %(count)s THEN due.until ELSE due.since END
FROM due CROSS JOIN counted
ON CONFLICT (subject, width_s) DO UPDATE SET until = greatest(thinned.until, excluded.until)
RETURNING (SELECT counted.gone FROM counted)
