"""Log one event per line, for people or for machines."""

import os
import sys
from logging import DEBUG, ERROR, INFO, getLogger
from typing import Literal, TextIO

import structlog
from structlog.typing import Processor

from forge_schema.program import standard_streams

Form = Literal["text", "json"]


def configure_log(
    form: Form = "text", stream: TextIO | None = None, *, verbose: bool = True
) -> None:
    """Write this process's log as text, or as JSON where $FORGE_LOG is `json`.

    Args:
        form: the form to use if $FORGE_LOG is not set.
        stream: where to write; None means stderr.
        verbose: whether to log debugging events too.
    """
    standard_streams()
    # The pool warns of each connection that fails; whoever waits for one logs it with the reason.
    getLogger("psycopg.pool").setLevel(ERROR)
    wanted = os.environ.get("FORGE_LOG") or form
    into = stream or sys.stderr
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso"),
            *_rendering(into, "json" if wanted == "json" else "text"),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(DEBUG if verbose else INFO),
        logger_factory=structlog.PrintLoggerFactory(into),
    )


def _rendering(stream: TextIO, form: Form) -> list[Processor]:
    if form == "json":
        return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer()]
    # The default formatter shows the local variables of each frame, tokens among them.
    plain = structlog.dev.plain_traceback
    return [structlog.dev.ConsoleRenderer(colors=stream.isatty(), exception_formatter=plain)]
