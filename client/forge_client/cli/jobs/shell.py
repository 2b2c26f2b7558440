"""`forge exec`: a shell, or any command, inside a running job."""

import typer
from forge_schema.model.job import JobStatus

from forge_client.backend import Backend
from forge_client.cli.options.job_command import command_of
from forge_client.cli.options.session import JobId, backend_of
from forge_client.connection import require_extra
from forge_client.errors import ClientError


def enter(context: typer.Context, job: JobId) -> None:
    """Run a command inside a running job, `sh` by default, with its exit code.

    It has the job's user, folder and variables, and this terminal if there is one. The job must
    run on this machine; where it runs elsewhere, its worker is named.
    """
    command = command_of(context) or ["sh"]
    require_extra("psutil", "worker", "look into jobs")
    from forge_client.up import exec as inside  # noqa: PLC0415 - only with the extra

    with backend_of(context) as backend:
        status = _running(backend, job)
        found = inside.find(status.worker or "", job, status.attempt)
        if found is None:
            raise _elsewhere(status)
        _note(backend, job, command[0])
    found.enter(command)


def _running(backend: Backend, job: int) -> JobStatus:
    status = backend.job(job)
    if status.state != "running":
        raise ClientError(
            f"job {job} does not run: it is {status.state}",
            hint=f"`forge show {job}` says where it is, `forge logs {job}` what it wrote",
            code="not_running_job",
        )
    if status.phase in {"claimed", "preparing"}:
        raise ClientError(
            f"job {job} is being prepared on worker {status.worker}, and has not started yet",
            hint=f"`forge logs -f {job}` shows how far it is",
            code="not_running_job",
        )
    return status


def _elsewhere(status: JobStatus) -> ClientError:
    ways = f"`forge exec {status.job_id}`, or `docker exec -it $(docker ps -qf label=forge.job="
    return ClientError(
        f"job {status.job_id} runs on worker {status.worker}, and not on this machine"
        " where this user could see it",
        hint=f"on that worker's machine, through ssh say: {ways}{status.job_id}) sh`",
        code="not_on_this_machine",
    )


def _note(backend: Backend, job: int, program: str) -> None:
    """Record it in the audit trail, which only a client with direct database access can do."""
    from forge_client.direct.backend import DirectBackend  # noqa: PLC0415 - only with the extra

    if isinstance(backend, DirectBackend):
        backend.note_entry(job, program)
