"""`forge exec`: a shell, or any command, inside a running job."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import typer
from forge_schema.model.job import JobDetail, RunMember
from forge_schema.model.states import Phase

from forge_client.backend import Backend
from forge_client.cli.options.command_line import command_of
from forge_client.cli.options.job_names import JobId
from forge_client.cli.options.session import backend_of
from forge_client.connection import require_extra
from forge_client.errors import ClientError
from forge_client.results.endings import it_is
from forge_client.results.names import require_rank

if TYPE_CHECKING:
    from forge_client.http.backend import HttpBackend
    from forge_client.up.exec import RunningHere

# Errors after which the job may still be entered on its own machine.
UNABLE = {"path_unknown", "worker_silent"}


def enter(
    context: typer.Context,
    job: JobId,
    rank: Annotated[int, typer.Option(help="Rank, of a job on several machines.", min=0)] = 0,
) -> None:
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
        found = on_this_machine(backend, status, rank, command[0])
    from forge_client.up import exec as inside  # noqa: PLC0415 - only with the extra

    inside.enter(found, command)


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

    found = inside.here(_member(status, rank).worker or "", status.job_id, status.attempt)
    if found is None:
        raise _elsewhere(status, rank)
    _note(backend, status.job_id, program)
    return found


def running(backend: Backend, job: int, rank: int) -> JobDetail:
    """Return a job, whose rank must be running its program.

    Raises:
        ClientError: it is not.
    """
    status = backend.job(job)
    require_rank(status, rank)
    if status.state != "running":
        raise ClientError(
            f"job {job} is not running: {it_is(status.state)}",
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
    return next((one for one in status.members if one.rank == rank), alone)


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
