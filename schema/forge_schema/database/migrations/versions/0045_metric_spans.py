"""Metric lines are summed up by the hundred, and all of a rank's together."""

import sqlalchemy as sa
from alembic import op
from sqlalchemy.dialects import postgresql

revision = "0045"
down_revision = "0044"

# As `add_metrics` does it from now on, for the lines that are there. A job that runs meanwhile, on
# a worker of the version before, has lines that are in no span: its curves are read line by line.
BACKFILL = """
    INSERT INTO metric_span (job_id, token, rank, span, lines, at, step, values)
    SELECT
        whole.job_id, whole.token, whole.rank, whole.span, whole.lines, whole.at, whole.step,
        coalesce(summed.values, '{}')
    FROM (
        SELECT
            job_id, token, rank, span, count(*) AS lines, max(at) AS at,
            (array_agg(step ORDER BY number DESC) FILTER (WHERE step IS NOT NULL))[1] AS step
        FROM metric CROSS JOIN LATERAL (VALUES (-1), (number / 100)) AS part (span)
        GROUP BY job_id, token, rank, span
    ) AS whole
    LEFT JOIN (
        SELECT job_id, token, rank, span, jsonb_object_agg(key, summary) AS values
        FROM (
            SELECT
                job_id, token, rank, span, key,
                row_number() OVER (
                    PARTITION BY job_id, token, rank, span ORDER BY length(key), key
                ) AS place,
                jsonb_build_array(
                    count(*), min(value), max(value), sum(value),
                    (array_agg(value ORDER BY number DESC))[1]
                ) AS summary
            FROM (
                SELECT
                    job_id, token, rank, span, number, key,
                    CASE WHEN abs(said) < 1e-300 THEN 0 ELSE said::float8 END AS value
                FROM metric
                CROSS JOIN LATERAL (VALUES (-1), (number / 100)) AS part (span)
                CROSS JOIN LATERAL jsonb_each(
                    CASE jsonb_typeof(values) WHEN 'object' THEN values END
                ) AS entry (key, raw)
                CROSS JOIN LATERAL (
                    SELECT CASE jsonb_typeof(raw) WHEN 'number' THEN raw::numeric END AS said
                ) AS number_in_it
                WHERE abs(said) < 1e300 AND key NOT IN ('step', 'total')
            ) AS told
            GROUP BY job_id, token, rank, span, key
        ) AS ranked
        WHERE place <= 64
        GROUP BY job_id, token, rank, span
    ) AS summed USING (job_id, token, rank, span)
"""


def upgrade() -> None:
    op.create_table(
        "metric_span",
        sa.Column("job_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("token", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rank", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("span", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("lines", sa.Integer(), nullable=False),
        sa.Column("at", sa.TIMESTAMP(timezone=True), nullable=False),
        sa.Column("step", sa.Double(), nullable=True),
        sa.Column("values", postgresql.JSONB(astext_type=sa.Text()), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "token", "rank", "span"),
        postgresql_with={"fillfactor": 50},
    )
    op.execute(BACKFILL)
