"""Runs on several machines: their members begin together, and end as one."""

from __future__ import annotations

from chaos.check.violation import by_sql

RANKS = by_sql(
    "the members of a run share the attempt, have its ranks once each, and a machine each",
    """
    SELECT
        job_id, token,
        format('attempt %s on %s machines, of %s to %s, has the ranks %s on %s', attempt, size,
            nodes, max_nodes, ranks, machines) AS says
    FROM (
        SELECT
            held.job_id, attempt, max(held.token) AS token,
            array_agg(held.rank::integer ORDER BY held.rank) AS ranks,
            count(DISTINCT held.worker_id) AS machines, max(granted.nodes) AS size
        FROM held
        JOIN chaos.change AS granted
            ON granted.job_id = held.job_id AND granted.token = held.token
            AND granted.rank = held.rank AND verb = 'granted'
        GROUP BY held.job_id, attempt
    ) AS run
    JOIN gang USING (job_id)
    WHERE ranks <> ARRAY(SELECT generate_series(0, size - 1))
        OR size NOT BETWEEN nodes AND max_nodes OR machines <> size
    """,
)

OUTLIVED = by_sql(
    "no rank's lease outlives its run",
    """
    SELECT job_id, held.token, format('rank %s is held, and the job is %s', rank, state) AS says
    FROM held JOIN gang USING (job_id) JOIN outcome USING (job_id)
    WHERE held.finished_at IS NULL
    UNION ALL
    SELECT job_id, member.token,
        format('rank %s of attempt %s was held until %s, attempt %s began at %s', member.rank,
            member.attempt, coalesce(member.finished_at, 'infinity'), later.attempt,
            later.claimed_at)
    FROM held AS member
    JOIN gang USING (job_id)
    JOIN held AS later USING (job_id)
    WHERE later.attempt > member.attempt
        AND later.claimed_at < coalesce(member.finished_at, 'infinity')
    """,
)

ONE_OUTCOME = by_sql(
    "a run has one outcome: that of the member that decided it",
    """
    SELECT job_id, outcome.token, 'the outcome is of no member of the last run' AS says
    FROM outcome JOIN gang USING (job_id)
    WHERE outcome.token IS NOT NULL AND NOT EXISTS (
        SELECT FROM held
        WHERE held.job_id = outcome.job_id AND held.token = outcome.token
            AND held.attempt = (
                SELECT max(last.attempt) FROM held AS last WHERE last.job_id = outcome.job_id
            )
    )
    UNION ALL
    SELECT job_id, held.token, format('succeeded, and rank %s ended as %s', rank, held.reason)
    FROM outcome JOIN gang USING (job_id) JOIN held USING (job_id, attempt)
    WHERE state = 'succeeded' AND held.reason NOT IN ('succeeded', 'run_ended') AND NOT by_master
    """,
)

RUNS = (RANKS, OUTLIVED, ONE_OUTCOME)
