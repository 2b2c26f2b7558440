-- thin_samples
-- Thins samples out that are past an age: of each slice of time one of each attempt and rank stays,
-- the earliest. So do the first and the last that it has. Goes on with the slice after the last one
-- that is done, and takes no more than `count` out; while another does that, nothing.
-- Some of what is found may have gone with another's call that ended meanwhile, so a slice is done
-- when fewer than `count` were found, however many of them went here.
WITH slice AS MATERIALIZED (
    SELECT
        done.width_s,
        date_bin(
            make_interval(secs => done.width_s), oldest.at, timestamptz '2000-01-01 00:00+00'
        ) AS since
    FROM thinned AS done
    CROSS JOIN LATERAL (
        SELECT at FROM sample WHERE sample.at >= done.until ORDER BY at LIMIT 1
    ) AS oldest
    WHERE done.subject = 'sample' AND done.width_s = %(width_s)s
),
due AS MATERIALIZED (
    SELECT
        thinned.width_s, slice.since, slice.since + make_interval(secs => slice.width_s) AS until
    FROM slice
    JOIN thinned ON thinned.subject = 'sample' AND thinned.width_s = slice.width_s
    WHERE slice.since + make_interval(secs => slice.width_s) <= forge_now() - %(age)s::interval
    FOR UPDATE OF thinned SKIP LOCKED
),
seen AS (
    SELECT
        sample.job_id, sample.token, sample.rank, sample.number, sample.at, due.since,
        row_number() OVER series AS place, lead(sample.number) OVER series AS next
    FROM due
    JOIN sample ON sample.at >= due.since AND sample.at < due.until
    WINDOW series AS (
        PARTITION BY sample.job_id, sample.token, sample.rank ORDER BY sample.number
    )
),
spare AS MATERIALIZED (
    SELECT seen.job_id, seen.token, seen.rank, seen.number, seen.at
    FROM seen
    WHERE seen.place > 1
        AND (
            seen.next IS NOT NULL
            OR EXISTS (
                SELECT FROM sample AS later
                WHERE later.job_id = seen.job_id AND later.token = seen.token
                    AND later.rank = seen.rank AND later.number > seen.number
                    AND later.at >= seen.since
            )
        )
    LIMIT %(count)s
),
gone AS (
    DELETE FROM sample USING spare
    WHERE sample.job_id = spare.job_id AND sample.token = spare.token
        AND sample.rank = spare.rank AND sample.number = spare.number
        AND sample.at = spare.at
    RETURNING sample.number
),
counted AS MATERIALIZED (
    SELECT
        (SELECT count(*)::integer FROM spare) AS spare, (SELECT count(*)::integer FROM gone) AS gone
)
UPDATE thinned
SET until = greatest(
    thinned.until, CASE WHEN counted.spare < %(count)s THEN due.until ELSE due.since END
)
FROM due CROSS JOIN counted
WHERE thinned.subject = 'sample' AND thinned.width_s = due.width_s
RETURNING counted.gone
