"""`forge logs`: a job's output, from all its attempts and workers."""

from typing import Annotated

import typer

from forge_client.cli.options.names import LAST, JobId
from forge_client.cli.options.session import backend_of, given
from forge_client.cli.show import output
from forge_client.cli.show.log_lines import Shaping, pattern
from forge_client.cli.show.waiting import begun, followed, stored_log
from forge_client.results.log_reader import LogPart
from forge_client.results.names import moment, require_moment

ALL = "all"


def ranks_of(text: str) -> str:
    """Check which ranks to print.

    Raises:
        typer.BadParameter: it is neither a rank nor `all`.
    """
    if text != ALL and not (text.isascii() and text.isdecimal()):
        raise typer.BadParameter(f"{text!r} is neither a rank nor `all`")
    return text


def logs(
    context: typer.Context,
    job: JobId = LAST,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the job ends.")
    ] = False,
    attempt: Annotated[int | None, typer.Option(help="Only this attempt's output.", min=1)] = None,
    rank: Annotated[
        str,
        typer.Option(
            metavar="N|all", help="Only this rank of a job on several machines.", callback=ranks_of
        ),
    ] = ALL,
    since: Annotated[
        str | None,
        typer.Option(
            metavar="AGE|TIME",
            help="Only output stored since then: 10m, yesterday, 2026-11-01T12:00; whole chunks.",
        ),
    ] = None,
    tail: Annotated[
        int | None,
        typer.Option("--tail", "-n", help="Only the last N lines (of each rank).", min=0),
    ] = None,
    grep: Annotated[
        str | None,
        typer.Option(metavar="REGEX", help="Only lines that match. A line ends after 1 MiB."),
    ] = None,
    timestamps: Annotated[
        bool,
        typer.Option("--timestamps", "-t", help="Prefix each line with the time it was stored."),
    ] = False,
) -> None:
    """Print a job's output: all attempts in order, byte for byte on stdout.

    With --follow, from the queue to the end, on any worker. Without JOB, of your newest job.
    Lines of a job with several ranks begin with the rank.
    """
    wanted = None if grep is None else pattern(grep)
    if since is not None:
        require_moment("--since", since)
    with backend_of(context) as backend:
        begin = None if since is None else moment("--since", since, backend)
        part = LogPart(attempt, None if rank == ALL else int(rank), begin, tail)
        shaping = Shaping(wanted, times=timestamps, colour=output.coloured())
        named = given(context, "job")
        known, teller = begun(backend, job, part, shaping, named=named, follow=follow)
        if follow:
            raise typer.Exit(followed(backend, job, part, teller))
        stored_log(backend, known, part, teller)
