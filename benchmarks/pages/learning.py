"""Runs that told how they learned: many short ones of one experiment, and long ones to compare."""

import psycopg

# The newest successes of an owner become runs with a hundred lines each; of the newest twelve, some
# have as many lines as are asked for. Spans are summed up as `add_metrics` does it.
CHOSEN = """
    CREATE TEMP TABLE run AS
    SELECT
        outcome.job_id, outcome.token, outcome.attempt, outcome.claimed_at AS since,
        row_number() OVER (ORDER BY job_id DESC) AS place
    FROM outcome JOIN job ON job.id = outcome.job_id
    WHERE outcome.state = 'succeeded' AND job.owner = 'ann' AND outcome.started_at IS NOT NULL
    ORDER BY job_id DESC LIMIT %(runs)s
"""
NAMED = """
    UPDATE job SET experiment = 'measured', spec = spec || jsonb_build_object(
        'parameters', jsonb_build_object('lr', 0.1 / place, 'batch', 32 * (place %% 4))
    )
    FROM run WHERE job.id = run.job_id
"""
CLEARED = """
    WITH lines AS (DELETE FROM metric USING run WHERE metric.job_id = run.job_id)
    DELETE FROM metric_span USING run WHERE metric_span.job_id = run.job_id
"""
LINES = """
    INSERT INTO metric (job_id, token, rank, number, at, attempt, step, values)
    SELECT
        job_id, token, 0, n, since + n * interval '1 millisecond', attempt, n,
        jsonb_build_object('step', n, 'loss', 3 / (1 + n * 0.001) + random(), 'top1', random())
    FROM run
    CROSS JOIN LATERAL generate_series(
        0, CASE WHEN place <= %(long)s THEN %(lines)s ELSE 100 END - 1
    ) AS n
"""
SPANS = """
    INSERT INTO metric_span (job_id, token, rank, span, lines, at, step, values)
    SELECT
        job_id, token, rank, part.span, count(*), max(at), max(step),
        jsonb_build_object(
            'loss', jsonb_build_array(
                count(*), min(loss), max(loss), sum(loss), (array_agg(loss ORDER BY number DESC))[1]
            ),
            'top1', jsonb_build_array(
                count(*), min(top1), max(top1), sum(top1), (array_agg(top1 ORDER BY number DESC))[1]
            )
        )
    FROM (
        SELECT
            metric.*, (metric.values -> 'loss')::float8 AS loss,
            (metric.values -> 'top1')::float8 AS top1
        FROM metric JOIN run USING (job_id, token)
    ) AS told
    CROSS JOIN LATERAL (VALUES (-1), (number / 100)) AS part (span)
    GROUP BY job_id, token, rank, part.span
"""


def learn(url: str, *, runs: int, long: int, lines: int) -> list[int]:
    """Give jobs of the past metrics, and return the ids of the long ones."""
    sizes = {"runs": runs, "long": long, "lines": lines}
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET session_replication_role = replica")
        for statement in (CHOSEN, NAMED, CLEARED, LINES, SPANS):
            connection.execute(statement, sizes)
        connection.execute("ANALYZE metric, metric_span, job")
        found = connection.execute("SELECT job_id FROM run WHERE place <= %s ORDER BY 1", [long])
        return [job for (job,) in found]
