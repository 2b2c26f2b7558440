"""`forge ssh` and `forge port`: OpenSSH's programs, and a job's ports, from anywhere."""

import os
import secrets
import sys
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from forge_client import tunnel
from forge_client.cli.inside.shell import on_this_machine, running, through_server
from forge_client.cli.options.command_line import command_of
from forge_client.cli.options.completion import jobs
from forge_client.cli.options.job_names import HELP, JobId, job_id
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.show import narration
from forge_client.errors import ClientError

if TYPE_CHECKING:
    from forge_client.http.backend import HttpBackend

LOWEST_PORT, HIGHEST_PORT = 1024, 65_535
Rank = Annotated[int, typer.Option(help="Rank, of a job on several machines.", min=0)]


def ssh(
    context: typer.Context,
    job: Annotated[
        int | None,
        typer.Argument(metavar="JOB", help=HELP, parser=str, callback=job_id, autocompletion=jobs),
    ] = None,
    rank: Rank = 0,
    config: Annotated[
        bool, typer.Option("--config", help="Print a section for ~/.ssh/config.")
    ] = False,
    stdio: Annotated[str, typer.Option(metavar="HOST", hidden=True)] = "",
    ports: Annotated[list[int] | None, typer.Option("--tunnel", hidden=True)] = None,
) -> None:
    """Open a running job with your own ssh; what follows -- are its options and command.

    With the section that --config prints, `ssh job-7`, `scp`, `rsync` and editors reach jobs too.
    """
    if stdio:
        _connect(context, stdio, ports or [])
    elif config:
        print(tunnel.config([*tunnel.FORGE, *_flags(context)]))  # noqa: T201 - the data
    elif job is None:
        raise ClientError("no job is given", hint="write forge ssh 7", code="option_invalid")
    else:
        with backend_of(context) as backend:
            running(backend, job, rank)
            env = tunnel.environment(backend)
        words = tunnel.command(tunnel.host(job, rank), *(command_of(context) or ()))
        sys.stdout.flush()
        os.execve(words[0], words, env)  # noqa: S606 - no shell is the point


def port(
    context: typer.Context,
    job: JobId,
    ports: Annotated[
        list[str], typer.Argument(metavar="PORT...", help="8888, or 9999:8888 for 9999 here.")
    ],
    rank: Rank = 0,
) -> None:
    """Connect ports of 127.0.0.1 here with ports that a running job listens on."""
    wanted = dict(map(_pair, ports))
    with backend_of(context) as backend:
        running(backend, job, rank)
        with tunnel.forwarded(backend, job, wanted, rank=rank) as process:
            for local, theirs in wanted.items():
                narration.say(f"http://127.0.0.1:{local} is port {theirs} of job {job}")
            narration.say("until you press Ctrl-C, or the job ends")
            process.wait()
    raise tunnel.lost(job)


def _pair(text: str) -> tuple[int, int]:
    local, _, theirs = text.rpartition(":")
    try:
        pair = int(local or theirs), int(theirs)
    except ValueError:
        pair = (0, 0)
    if not all(LOWEST_PORT <= one <= HIGHEST_PORT for one in pair):
        raise ClientError(
            f"{text!r} is not a port from {LOWEST_PORT} to {HIGHEST_PORT}",
            hint="write 8888, or 9999:8888 for another port here",
            code="option_invalid",
        )
    return pair


def _connect(context: typer.Context, name: str, ports: list[int]) -> None:
    """Be the connection of an ssh that runs on this machine."""
    job, rank = tunnel.named(name)
    pin = partial(tunnel.pin, name)

    def enter(server: "HttpBackend") -> int:
        server.tunnel(job, ports, pin, rank=rank)
        return 0

    with backend_of(context) as backend:
        status = running(backend, job, rank)
        if through_server(backend, enter) is not None:
            return
        found = on_this_machine(backend, status, rank, "port" if ports else "ssh")
    from forge_client.up import exec as inside  # noqa: PLC0415 - only with the extra

    inside.serve(found, f"{job}-{secrets.token_hex(8)}", ports, pin)


def _flags(context: typer.Context) -> list[str]:
    """Return the options that lead another `forge` to the same server; they hold no secret."""
    settings = settings_of(context)
    given = {
        "--url": settings.url,
        "--api-key-file": settings.api_key_file and settings.api_key_file.absolute(),
        "--tls-ca": settings.tls_ca and settings.tls_ca.absolute(),
    }
    return [word for name, value in given.items() if value for word in (name, str(value))]
