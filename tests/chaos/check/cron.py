"""Schedules: each of their times submits one job, or is passed over as the documents say."""

from __future__ import annotations

from chaos.check.violation import by_sql

# fired: the jobs of schedules; a job's key names its schedule and its time.
# shown: a schedule after each change, until the next one.
# planned: what a client said, before it did it, of a schedule's times, in seconds of the epoch.
SCHEDULES = """
    WITH fired AS MATERIALIZED (
        SELECT
            id AS job_id, submitted_at, split_part(idempotency_key, ':', 2)::integer AS schedule_id,
            substring(idempotency_key FROM '[0-9T:-]{19}Z')::timestamptz AS due
        FROM job WHERE idempotency_key ~ '^schedule:[0-9]+:[0-9T:-]{19}Z:.'
    ),
    shown AS MATERIALIZED (
        SELECT
            schedule_change.*,
            lead(at, 1, 'infinity') OVER changes AS until,
            lag(paused) OVER changes IS NOT FALSE AS begins,
            last_due_at IS DISTINCT FROM lag(last_due_at) OVER changes AS moved
        FROM chaos.schedule_change
        WINDOW changes AS (PARTITION BY schedule_id ORDER BY number)
    ),
    planned AS MATERIALIZED (
        SELECT
            to_timestamp(wall) AS said_at, "values" ->> 'name' AS name,
            ("values" ->> 'every_s')::integer AS every_s,
            ("values" ->> 'first_s')::integer AS first_s
        FROM told WHERE kind = 'scheduled'
    )
"""

NOT_EARLY = by_sql(
    "no job of a schedule is submitted before its time by the database's clock",
    f"""
    {SCHEDULES}
    SELECT job_id, format('submitted at %s for %s', submitted_at, due) AS says
    FROM fired WHERE submitted_at < due
    """,
)

ONCE = by_sql(
    "a schedule submits at most one job for each of its times",
    f"""
    {SCHEDULES}
    SELECT max(job_id) AS job_id,
        format('schedule %s has the jobs %s for %s', schedule_id, array_agg(job_id), due) AS says
    FROM fired GROUP BY schedule_id, due HAVING count(*) > 1
    """,
)

# A sweeper may have found a schedule due just before a pause of it is committed: both statements
# end within their time limit. A time is calculated when its schedule is resumed or added, and may
# have passed when that is committed.
IN_FORCE = by_sql(
    "a schedule submits only for its own times, and for none while it is paused or removed",
    f"""
    {SCHEDULES}
    SELECT job_id, format('schedule %s was not to submit a job for %s', schedule_id, due) AS says
    FROM fired WHERE NOT EXISTS (
        SELECT FROM shown
        JOIN planned USING (name)
        WHERE shown.schedule_id = fired.schedule_id AND next_at = due
            AND NOT paused AND NOT gone AND due < until + interval '30 s'
            AND (extract(EPOCH FROM due)::bigint - first_s) % every_s = 0
            AND said_at <= at AND (said_at <= due OR NOT begins)
    )
    """,
)

# Times until the faults ended count even if the schedule was paused afterwards.
EACH_TIME = by_sql(
    "each time of a schedule that is neither paused nor removed has its job, or passed before the"
    " job of an earlier time was submitted",
    f"""
    {SCHEDULES},
    healed AS (
        SELECT coalesce(
            (SELECT to_timestamp(max(wall)) FROM told
                WHERE kind = 'healed' AND "values" ->> 'fault' = 'all'),
            (SELECT max(at) FROM shown)
        ) AS at
    ),
    times AS (
        SELECT shown.*, to_timestamp(s) AS due
        FROM shown
        JOIN (SELECT DISTINCT name, every_s, first_s FROM planned) AS planned USING (name)
        CROSS JOIN healed
        CROSS JOIN generate_series(
            ceil((extract(EPOCH FROM shown.at) - first_s) / every_s)::bigint * every_s + first_s,
            floor(extract(EPOCH FROM least(until, healed.at)))::bigint,
            every_s
        ) AS s
        WHERE NOT paused AND NOT gone
    )
    SELECT
        times.last_job_id AS job_id,
        format('schedule %s did nothing for %s', times.schedule_id, times.due) AS says
    FROM times
    CROSS JOIN healed
    LEFT JOIN LATERAL (
        SELECT * FROM shown AS later
        WHERE later.schedule_id = times.schedule_id
            AND CASE
                WHEN later.number = times.number THEN next_at > due
                ELSE later.number > times.number AND (next_at > due OR paused OR gone)
            END
        ORDER BY number LIMIT 1
    ) AS next ON true
    WHERE CASE
        WHEN next.paused OR next.gone THEN next.at > healed.at
        ELSE next.moved IS NOT TRUE OR next.at < due OR next.last_due_at > due
    END OR (next.moved AND next.last_due_at = due AND NOT EXISTS (
        SELECT FROM fired WHERE (fired.schedule_id, fired.due) = (times.schedule_id, times.due)
    ))
    """,
)

ENDS = by_sql(
    "every job of a schedule ends terminal once faults stop",
    f"""
    {SCHEDULES}
    SELECT job_id, format('submitted for %s, and now %s', due, state) AS says
    FROM fired LEFT JOIN job_status USING (job_id)
    WHERE state IS NULL OR state IN ('scheduled', 'held', 'ready', 'running')
    """,
)

CRON = (NOT_EARLY, ONCE, IN_FORCE, EACH_TIME, ENDS)
