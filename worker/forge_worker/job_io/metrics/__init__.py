"""Metrics: the lines in a job's metrics file, or the scalars in its event files."""

from forge_worker.job_io.metrics.metrics_file import (
    LINE_BYTES,
    MetricsFile,
    parse,
    progress_of,
    step_of,
)
from forge_worker.job_io.metrics.tail import MetricsTail, Settling

__all__ = [
    "LINE_BYTES",
    "MetricsFile",
    "MetricsTail",
    "Settling",
    "parse",
    "progress_of",
    "step_of",
]
