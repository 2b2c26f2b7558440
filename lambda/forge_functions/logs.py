"""The log: lines for people on a terminal, JSON for machines."""

from typing import TextIO

import structlog


def configure(stream: TextIO) -> None:
    """Write the log of this process to a stream."""
    people = stream.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.set_exc_info if people else structlog.processors.dict_tracebacks,
            structlog.dev.ConsoleRenderer() if people else structlog.processors.JSONRenderer(),
        ],
        logger_factory=structlog.PrintLoggerFactory(stream),
        cache_logger_on_first_use=True,
    )
