"""`forge exec`, `forge ssh` and `forge port`: a shell or a port inside a job, from anywhere."""

import os
import re
import secrets
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer
from forge_schema.model.job import JobDetail, RunMember
from forge_schema.model.states import Phase, in_state

from forge_client import ssh_config, tunnel
from forge_client.backend import Backend
from forge_client.cli.options.command_line import command_of
from forge_client.cli.options.names import HELP, LAST, JobId, job_id, jobs
from forge_client.cli.options.session import backend_of, settings_of
from forge_client.cli.show import narration
from forge_client.connection import require_extra
from forge_client.errors import ClientError, InvalidInput
from forge_client.results.names import require_rank

if TYPE_CHECKING:
    from forge_client.http.backend import HttpBackend
    from forge_client.up.exec import RunningHere

# Errors after which the job may still be entered on its own machine.
UNABLE = {"path_unknown", "worker_silent"}
LOWEST_PORT, HIGHEST_PORT = 1024, 65_535
# What links to it begin with.
EDITOR = re.compile(r"[a-z][a-z0-9-]*")
PATIENCE_S = 60
Rank = Annotated[int, typer.Option(help="Rank, of a job on several machines.", min=0)]


def enter(context: typer.Context, job: JobId, rank: Rank = 0) -> None:
    """Run a command inside a running job, `sh` by default, with its exit code.

    It has the job's user, folder and variables, and this terminal if there is one. Through a
    server, the job may run on any machine; with direct database access, it must run on this one.
    """
    command = command_of(context) or ["sh"]
    with backend_of(context) as backend:
        status = running(backend, job, rank)
        through = through_server(backend, lambda server: server.enter(job, command, rank=rank))
        if through is not None:
            raise typer.Exit(through)
        entry = on_this_machine(backend, status, rank, command[0])
    from forge_client.up import exec as inside  # noqa: PLC0415 - only with the extra

    inside.enter(entry, command)


def through_server(backend: Backend, enter: Callable[["HttpBackend"], int]) -> int | None:
    """Return the exit code of what the server had run; None if it cannot."""
    from forge_client.http.backend import HttpBackend  # noqa: PLC0415 - httpx takes a while

    try:
        return enter(backend) if isinstance(backend, HttpBackend) else None
    except ClientError as error:
        # A server on Lambda, or a worker that cannot come: look on this machine.
        if error.code not in UNABLE or find_spec("psutil") is None:
            raise
        return None


def on_this_machine(backend: Backend, status: JobDetail, rank: int, program: str) -> "RunningHere":
    """Return a rank of a job that runs here, and record that somebody enters it.

    Raises:
        ClientError: it does not run here, or this user may not enter it.
    """
    require_extra("psutil", "worker", "look into jobs")
    from forge_client.up import exec as inside  # noqa: PLC0415 - only with the extra

    entry = inside.here(_member(status, rank).worker or "", status.job_id, status.attempt)
    if entry is None:
        raise _elsewhere(status, rank)
    _note(backend, status.job_id, program)
    return entry


def running(backend: Backend, job: int, rank: int) -> JobDetail:
    """Return a job, whose rank must be running its program; `ClientError` if it is not."""
    status = backend.job(job)
    require_rank(status, rank)
    if status.state != "running":
        raise ClientError(
            f"job {job} is not running: it {in_state(status.state)}",
            hint=f"`forge show {job}` shows its state, `forge logs {job}` its output",
            code="not_running_job",
        )
    member = _member(status, rank)
    if member.reason is not None:
        raise ClientError(
            f"{_named(status, rank)} has ended on worker {member.worker}; others are still running",
            hint=f"`forge show {job}` lists them, `forge logs {job} --rank {rank}` has its output",
            code="not_running_job",
        )
    if member.phase in {"claimed", "preparing"}:
        raise ClientError(
            f"{_named(status, rank)} is being prepared on worker {member.worker}, and has not"
            " started yet",
            hint=f"`forge logs -f {job}` shows how far it is",
            code="not_running_job",
        )
    return status


def _member(status: JobDetail, rank: int) -> RunMember:
    """Return one rank of a running job."""
    alone = RunMember(rank=0, worker=status.worker, phase=status.phase or Phase.RUNNING)
    return next((member for member in status.members if member.rank == rank), alone)


def _named(status: JobDetail, rank: int) -> str:
    return f"job {status.job_id}" if status.nodes == 1 else f"rank {rank} of job {status.job_id}"


def _elsewhere(status: JobDetail, rank: int) -> ClientError:
    chosen = "" if status.nodes == 1 else f" --rank {rank}"
    ways = f"`forge exec {status.job_id}{chosen}`"
    ways += ", or `docker exec -it $(docker ps -qf label=forge.job="
    return ClientError(
        f"{_named(status, rank)} runs on worker {_member(status, rank).worker}, which is not"
        " on this machine, or not visible to this user",
        hint="through a server (FORGE_URL), a job is entered from anywhere; or on that worker's"
        f" machine, for example over ssh, run {ways}{status.job_id}) sh`",
        code="not_on_this_machine",
    )


def _note(backend: Backend, job: int, program: str) -> None:
    """Record it in the audit trail, which only a client with direct database access can do."""
    from forge_client.direct.backend import DirectBackend  # noqa: PLC0415 - only with the extra

    if isinstance(backend, DirectBackend):
        backend.note_entry(job, program)


def ssh(
    context: typer.Context,
    job: Annotated[
        int | None,
        typer.Argument(metavar="JOB", help=HELP, parser=str, callback=job_id, autocompletion=jobs),
    ] = None,
    rank: Rank = 0,
    config: Annotated[
        bool, typer.Option("--config", help="Have ~/.ssh/config find jobs, from now on.")
    ] = False,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="Print a section for ~/.ssh/config instead.")
    ] = False,
    stdio: Annotated[str, typer.Option(metavar="HOST", hidden=True)] = "",
    ports: Annotated[list[int] | None, typer.Option("--tunnel", hidden=True)] = None,
) -> None:
    """Open a running job with your own ssh; what follows -- are its options and command.

    After --config, `ssh job-7`, `ssh NAME.forge`, `scp`, `rsync` and editors reach jobs too.
    """
    if stdio:
        _connect(context, stdio, ports or [])
    elif print_config:
        print(tunnel.config([*tunnel.FORGE, *flags(context)]))  # noqa: T201 - the data
    elif config:
        with backend_of(context) as backend:
            names = ssh_config.write(backend, [*tunnel.FORGE, *flags(context)])
        jobs_now = f"now: {', '.join(names)}" if names else "no job runs now"
        narration.say(f"~/.ssh/config includes {ssh_config.place()}; {jobs_now}")
    elif job is None:
        raise InvalidInput("no job is given", hint="write forge ssh 7")
    else:
        with backend_of(context) as backend:
            running(backend, job, rank)
            env = tunnel.environment(backend)
        words = tunnel.command(tunnel.host(job, rank), *(command_of(context) or ()))
        sys.stdout.flush()
        os.execve(words[0], words, env)  # noqa: S606 - no shell is the point


def code_url(
    context: typer.Context,
    job: JobId = LAST,
    rank: Rank = 0,
    editor: Annotated[
        str, typer.Option(metavar="NAME", help="vscode, vscode-insiders, vscodium, cursor …")
    ] = "vscode",
) -> None:
    """Print the link that opens VS Code, or an editor like it, in a running job's folder.

    It needs the extension Remote-SSH. The link is for the job, so it works again after a
    preemption.
    """
    if not EDITOR.fullmatch(editor):
        raise InvalidInput(
            f"{editor!r} is no editor's name in links",
            hint="write vscode, vscode-insiders, vscodium, cursor or windsurf",
        )
    with backend_of(context) as backend:
        running(backend, job, rank)
        ssh_config.write(backend, [*tunnel.FORGE, *flags(context)])
        folder = _folder(tunnel.host(job, rank), dict(tunnel.environment(backend)))
    print(f"{editor}://vscode-remote/ssh-remote+{tunnel.host(job, rank)}{quote(folder)}")  # noqa: T201 - the data


def _folder(host: str, environment: dict[str, str]) -> str:
    """Return the folder of a job as its own shell names it."""
    done = subprocess.run(  # noqa: S603 - our own words
        tunnel.command(host, "pwd"),
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    if done.returncode:
        raise ClientError(
            f"{host} cannot be entered: {done.stderr.strip()}",
            hint=f"`forge ssh {host.split('-')[1]}` shows more",
            code="shell_lost",
        )
    return done.stdout.strip()


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
            for local, theirs in wanted.items():
                if not tunnel.listens(local):
                    text = (
                        f"nothing listens on port {theirs} of job {job}; once it does, it is there"
                    )
                    narration.say(text, "yellow")
            process.wait()
    raise tunnel.lost(job)


def _pair(text: str) -> tuple[int, int]:
    local, _, theirs = text.rpartition(":")
    try:
        pair = int(local or theirs), int(theirs)
    except ValueError:
        pair = (0, 0)
    if not all(LOWEST_PORT <= port_of_pair <= HIGHEST_PORT for port_of_pair in pair):
        raise InvalidInput(
            f"{text!r} is not a port from {LOWEST_PORT} to {HIGHEST_PORT}",
            hint="write 8888, or 9999:8888 for another port here",
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
        ssh_config.keep(backend, [*tunnel.FORGE, *flags(context)])
        if through_server(backend, enter) is not None:
            return
        entry = on_this_machine(backend, status, rank, "port" if ports else "ssh")
    from forge_client.up import exec as inside  # noqa: PLC0415 - only with the extra

    inside.serve(entry, f"{job}-{secrets.token_hex(8)}", ports, pin)


def flags(context: typer.Context) -> list[str]:
    """Return the options that lead another `forge` to the same server; they hold no secret."""
    settings = settings_of(context)
    given = {
        "--url": settings.url,
        "--api-key-file": settings.api_key_file and settings.api_key_file.absolute(),
        "--tls-ca": settings.tls_ca and settings.tls_ca.absolute(),
    }
    return [word for name, value in given.items() if value for word in (name, str(value))]
