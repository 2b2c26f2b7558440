"""What a launcher is: it turns a job's command into what each machine of a gang runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from forge_schema.model.errors import ForgeError

from forge_worker.gang.members import Gang


@dataclass(frozen=True, slots=True)
class Launch:
    """What one member runs: a command, more variables, and files for its control folder by name.

    The files are executable. `secrets` are variables that no list of processes shows.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


# Of the gang as one member sees it, the job's command, and the control folder's path in the job.
Launcher = Callable[[Gang, tuple[str, ...], PurePath], Launch]


class LauncherUnable(ForgeError):
    """This launcher cannot start the job in this gang."""

    code = "launcher_unable"


def script(command: tuple[str, ...], no_python: str) -> tuple[str, ...]:
    """Return a command for a launcher that expects a Python script; others follow `no_python`."""
    return command if command[0].endswith(".py") else (no_python, *command)


def each(gang: Gang, launcher: str) -> int:
    """Return the number of processes of each member.

    Raises:
        LauncherUnable: the members have different numbers of GPUs.
    """
    counts = {peer.processes for peer in gang.peers}
    if len(counts) > 1:
        said = ", ".join(f"{peer.worker}: {peer.processes}" for peer in gang.peers)
        raise LauncherUnable(
            f"{launcher} needs the same number of GPUs on each machine ({said})",
            hint="use --launcher torchrun",
        )
    return gang.own.processes
